"""Files that a pipeline writes, each of which stands in its directory once."""
