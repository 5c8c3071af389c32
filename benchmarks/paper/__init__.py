"""The paper's tables of its image experiment."""
