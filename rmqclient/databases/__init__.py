"""A database transaction and a message as one thing."""
