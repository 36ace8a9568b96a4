"""Sending: how messages reach the brokers of a cluster.

``sender`` is what a producer calls. ``queue_choice`` and ``avoidance`` say which broker gets a message, ``attempts`` and
``delivery`` try again, ``outgoing`` writes requests and reads their answers. ``copies`` stores failed messages again,
``delays`` are those of brokers. ``transactions`` and ``replies`` are for the producers of those names.
"""
