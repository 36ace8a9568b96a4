"""The market: the messages.

Prices go to one queue for each symbol, because they are sent with it as their sharding key.
"""

from __future__ import annotations

import msgspec

from rmqclient import Message, Producer

SYMBOLS = ("AAPL", "AMZN", "GOOG", "IBM", "INTC", "MSFT", "NVDA", "ORCL", "TSLA", "XOM")


class Price(msgspec.Struct):
    """The price of one share, in cents."""

    cents: int


class Order(msgspec.Struct):
    """An order for some shares."""

    number: int
    symbol: str
    shares: int


class Valuation(msgspec.Struct):
    """The value of an order, in cents."""

    symbol: str
    cents: int


def quote(producer: Producer, symbol: str, cents: int) -> None:
    """Send a price."""
    producer.send(Message("prices", Price(cents), keys=symbol), symbol)


def order(producer: Producer, number: int, symbol: str, shares: int) -> None:
    """Send an order."""
    producer.send(Message("orders", Order(number, symbol, shares), keys=f"{number}"))
