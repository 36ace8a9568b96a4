"""Applications that run at both places."""
