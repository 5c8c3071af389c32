"""Reads configs from YAML and from command lines."""
