"""Clips of trained agents at play."""
