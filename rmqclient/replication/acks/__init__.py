"""Acks: the part of the log that followers have, for senders of messages that wait for it."""
