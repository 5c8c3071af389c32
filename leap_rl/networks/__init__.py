"""Encoders and the actor-critic heads on top of them, in torch alone."""
