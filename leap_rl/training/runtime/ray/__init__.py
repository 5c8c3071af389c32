"""Server and trainers as Ray actors: all that imports ray."""
