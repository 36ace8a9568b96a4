"""Address: the URL of a cluster, namespaces, and the directory for a cluster's state on this host."""
