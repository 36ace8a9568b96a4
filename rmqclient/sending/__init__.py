"""Producers: plain, in transactions, and those that wait for a reply."""
