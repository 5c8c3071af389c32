"""Whether an initialization helps: learning curves, measures, intervals, verdict, plots."""
