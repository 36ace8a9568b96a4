"""Client: one member of a cluster, with its routes, its name servers and its heartbeats."""
