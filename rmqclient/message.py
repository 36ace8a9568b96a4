"""Messages: what is sent, what is received, and where a sent one stands. All three are compiled classes."""

from __future__ import annotations

from rmqclient.store import Message, ReceivedMessage, SendResult

__all__ = ["Message", "ReceivedMessage", "SendResult"]
