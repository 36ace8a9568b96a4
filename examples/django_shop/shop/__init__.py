"""The shop's own app."""
