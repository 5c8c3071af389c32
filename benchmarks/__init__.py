"""What developers measure: the system's parts, peers, protocols, and the paper's tables."""
