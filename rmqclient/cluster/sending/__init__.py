"""Sending: sends messages to the brokers of a cluster.

Producers call ``sender``, which makes each message a request (``send_requests``) and gives it to ``delivery``. That
chooses a queue (``queue_choice``), sends, and tries again. ``batches`` splits long batches, ``copies`` stores failed
messages again, and ``delays`` has the properties of delays. ``transactions`` decides about half messages, ``replies``
sends and receives replies to requests, and ``producers`` makes all of them.
"""
