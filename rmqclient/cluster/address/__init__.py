"""Address: what the URL of a cluster says."""
