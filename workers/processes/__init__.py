"""Worker processes: their supervisor, the pure state machine of a worker's life, and the worker itself.

The supervisor is the way in; ``rmq run`` and ``owned``, for ``with app.workers()``, run it. ``worker`` runs in the
other process, and imports neither click nor rich.
"""
