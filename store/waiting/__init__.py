"""Messages that wait: for a delay level, for any due time, for the decision of a transaction; and sends by key.

``Schedule``, ``Timer``, ``Transactions`` and ``Once`` each belong to one open store, which makes them. Restoring them
is the work of ``store/recovery/opening.py``; :func:`rmqclient.store.waiting.real_queue.real_queue` is for every room.
"""
