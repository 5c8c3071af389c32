"""Measurements for development: parts of the system, peers, protocols, the paper's tables."""
