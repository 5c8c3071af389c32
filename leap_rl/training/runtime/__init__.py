"""Where server and trainers run: in one process, or as Ray actors."""
