"""Failures: messages that a handler could not finish.

``retry`` has the policy, and stores a failed message for its next attempt or as a dead letter; ``failure`` describes
one failed attempt; ``dead_letters`` lists, replays and purges for the command line. Applications use
:class:`rmqclient.RetryPolicy`; deliveries use ``retry`` and ``failure``.
"""
