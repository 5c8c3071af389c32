"""Console and metrics of a run; one file for each sink."""
