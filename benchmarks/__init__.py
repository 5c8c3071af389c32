"""Measurements for development: parts of the system, peers, layers, the paper's tables."""
