"""Benchmarks of the server: `rmq serve` in a process of its own, clients on loopback."""
