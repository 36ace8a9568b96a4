"""Sending: how messages reach the brokers of a cluster.

``sender`` is what a producer calls. ``queue_choice`` and ``avoidance`` say which broker gets a message; ``attempts``
and ``delivery`` try again. ``outgoing`` writes requests and reads answers, ``batches`` splits what is too long,
``copies`` stores failed messages again, and ``delays`` are those of brokers. :mod:`rmqclient.cluster.producing` has
transactions and replies.
"""
