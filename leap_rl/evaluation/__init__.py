"""Does an initialization help? Learning curves, their measures, and how sure those are."""
