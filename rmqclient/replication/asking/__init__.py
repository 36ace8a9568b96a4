"""Asking: what the log does not say, from the broker of the primary."""
