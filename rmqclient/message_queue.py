"""Message queue: one numbered queue of a topic, written (topic, queue id).

Wherever members must agree on an order of queues it is ``sort_key``: topic, broker name as text (``b-10`` before
``b-2``), queue id as a number (RocketMQ's MessageQueue.compareTo).
"""

from __future__ import annotations

from rmqclient.store import MessageQueue

__all__ = ["MessageQueue"]
