"""Failures: messages that a handler could not finish.

``retry`` has the policy, and stores a failed message for its next attempt or as a dead letter; ``failure`` describes
one failed attempt; ``application_errors`` says of what class an error is; ``dead_letters`` lists, replays and purges
for the command line. Applications use :class:`rmqclient.RetryPolicy`; deliveries use ``retry`` and ``failure``.
"""
