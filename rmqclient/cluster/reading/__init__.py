"""Reading: what a cluster tells to whoever is no member of a group: topics, messages, positions of groups."""
