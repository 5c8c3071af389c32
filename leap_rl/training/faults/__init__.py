"""Named moments in a run's life, and deaths on order at them."""
