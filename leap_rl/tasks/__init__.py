"""Task families: what a task is, its options, its checks, and how it is made."""
