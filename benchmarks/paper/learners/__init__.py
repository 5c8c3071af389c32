"""Learners of the paper that are no part of leap_rl: HAT and Progressive Nets."""
