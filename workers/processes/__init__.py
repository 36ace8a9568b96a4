"""The processes of ``rmq run``: the supervisor, the pure state machine of a worker's life, and the worker itself.

The supervisor is the way in. ``worker`` runs in the other process, and imports neither click nor rich.
"""
