"""Throughput here and the plan of a run, measured on the objects that a run is made of.

A run carries no timers: a measurement wraps the methods of one object from outside.
"""
