"""Runs: their configs and kinds; making, opening, carrying out and describing them.

From Python they are made by `leap_rl.runs.api`, whose functions are leap_rl's own. Nothing here
knows the command line: options are typed values by dotted name.
"""
