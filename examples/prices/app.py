"""The application: it values each order by the last price of its symbol that was sent before the order.

``rmq run examples.prices.app:app --processes 2`` runs it. The store is the directory in ``RMQ_STORE``, or
``demo-output/prices``. Valuations go to a topic that is a table, too: ``rmq topic table valuations``.
"""

from __future__ import annotations

import os
from functools import cache

from examples.prices.market import Order, Price, Valuation
from rmqclient import App, Message, Producer, RetryPolicy

app = App(os.environ.get("RMQ_STORE", "demo-output/prices"))

prices = app.table("prices", value_type=Price)
"""Each worker has its own table, in memory, and follows the topic."""


@app.handler("orders", group="valuation", threads=4, retry=RetryPolicy(delays=(1.0,)))
def value(order: Order) -> None:
    """Send the value of an order. An order whose symbol has no price yet comes again after a second."""
    prices.wait_until_caught_up()
    valuation = Valuation(order.symbol, order.shares * prices[order.symbol].cents)
    results().send(Message("valuations", valuation, keys=f"{order.number}"), f"{order.number}")


@cache
def results() -> Producer:
    """Return the producer of the handler, the same for all calls in this process."""
    return Producer(app.root)
