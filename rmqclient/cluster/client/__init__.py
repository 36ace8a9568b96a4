"""Client: one client of a cluster, with its routes, name servers and heartbeats."""
