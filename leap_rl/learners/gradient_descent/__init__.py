"""Plain gradient descent on noisy quadratic bowls, for tests and for debugging."""
