"""A script's own training loop as a learner: a function that learns a game from an encoder."""
