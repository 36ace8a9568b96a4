"""Address: what the URL of a cluster says, and where this host keeps what belongs to one."""
