"""Throughput here and the plan of a run, measured on the objects that a run is made of.

Product code carries no timers. A measurement wraps the methods of one object from outside, in
other windows than those that give the headline figure.

Nothing is imported here, so that reading `leap_rl.bench.config` costs no import of torch.
"""
