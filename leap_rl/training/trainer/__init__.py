"""The trainer: runs one task after another, records it, and takes its snapshots."""
