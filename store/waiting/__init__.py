"""Messages that wait: for a time, for a decision, or for being the only one of their key."""
