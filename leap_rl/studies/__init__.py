"""Studies: from which start a new agent learns soonest; arms, cells, their execution, the page."""
