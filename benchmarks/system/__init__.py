"""Measures parts of the system: Leap's sums, snapshots, the server, the start, messages."""
