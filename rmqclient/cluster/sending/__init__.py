"""Sending: sends messages to the brokers of a cluster.

Producers call ``sender``. ``queue_choice`` and ``avoidance`` choose the broker; ``attempts`` and ``delivery`` retry.
``outgoing`` encodes requests and decodes answers, ``batches`` splits long batches, ``copies`` stores failed messages
again, and ``delays`` has the properties of delays. :mod:`rmqclient.cluster.producing` has transactions and replies.
"""
