"""Small environments of our own, for tests and demonstrations."""
