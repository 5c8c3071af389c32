"""Measures throughput on the objects that a run is made of, and plans a run from it.

Runs contain no timers: a measurement wraps the methods of one object from outside.
"""
