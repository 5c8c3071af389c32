"""Omniglot: characters to classify, an alphabet a game (the paper's image experiment)."""
