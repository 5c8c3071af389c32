"""Experiments of many cells, each computed in a process of its own and kept when it is done."""
