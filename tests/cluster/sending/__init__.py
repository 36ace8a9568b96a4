"""Producers against scripted brokers: what they send, when they try again, and what they say of a failure."""
