"""Kills the processes of a run on purpose, and looks at whether anything came of it."""
