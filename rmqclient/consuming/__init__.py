"""Consumers: which queues a process has, and what it reads of them."""
