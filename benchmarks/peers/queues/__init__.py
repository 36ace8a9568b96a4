"""Queues: one file for each, with its server and what its client does; ours are three rows of ``rmq``."""
