"""Environments: Atari, Gymnasium, MinAtar, small ones; all are vectors of one interface."""
