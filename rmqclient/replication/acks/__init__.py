"""Acks: how many followers have what, and what senders are told of it."""
