"""Messages: what is sent, what is received, where a sent one stands, and the queue that it stands in.

The three messages are compiled classes. Wherever members must agree on an order of queues, they sort them by
``MessageQueue.sort_key``: topic, broker name as text (``b-10`` before ``b-2``), queue id as a number (RocketMQ's
MessageQueue.compareTo).
"""

from __future__ import annotations

from rmqclient.store import Message, MessageQueue, ReceivedMessage, SendResult

__all__ = ["Message", "MessageQueue", "ReceivedMessage", "SendResult"]
