"""Runs that live in an object store, with a working copy on the machine that works on them."""
