"""Images to classify: Omniglot's alphabets, and data sets (the paper's image experiments)."""
