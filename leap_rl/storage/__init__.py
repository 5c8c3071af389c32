"""A run's files: its folder, its lock, durable writes; the same in an object store."""
