"""Noisy quadratic bowls, for tests and for debugging."""
