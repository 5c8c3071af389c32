"""stable-baselines3's algorithms as learners; an extra, imported where it is used alone."""
