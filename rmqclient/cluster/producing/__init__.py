"""Producing: senders, transactions and replies of the producers of one client."""
