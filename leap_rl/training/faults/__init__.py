"""Fault points, and the injection of failures at them."""
