"""What rounds are for: meta-training, learning, evaluation, validation meanwhile."""
