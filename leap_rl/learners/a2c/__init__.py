"""Advantage actor-critic: the agent without its environments in torch alone, and its tasks."""
