"""The distributed system: a parameter server, trainers, and the runtimes that carry them."""
