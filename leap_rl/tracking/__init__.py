"""What a run shows and records: the registry of metrics, the console, one file for each sink."""
