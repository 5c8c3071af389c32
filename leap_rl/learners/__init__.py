"""Who learns: the algorithms, and the protocol of a task that the training system sees."""
