"""Learning processes behind one protocol."""
