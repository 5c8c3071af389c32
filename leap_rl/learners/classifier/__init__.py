"""Learning to classify by plain gradient descent, pure torch: network, updates, augmentation."""
