"""Advantage actor-critic without its environments, in torch alone.

Nothing is imported here, so that reading `leap_rl.learners.config` costs no import of torch.
"""
