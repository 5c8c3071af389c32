"""Games to learn: Atari, a small game of our own, and the interface that both keep to."""
