"""Kills a run's processes on purpose, and compares the result with that of an undisturbed run."""
