"""What is played or classified: suites of games, their options and budgets; no algorithm."""
