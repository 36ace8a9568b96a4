"""Producing: what the producers of one client share: senders, transactions with their questions, and pushed replies."""
