"""Two hosts as processes, a network between them that fails, and what must be left after kills and power cuts."""
