"""The parameter server: one round of slots at a time, and all that happens to a slot."""
