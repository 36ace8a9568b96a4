"""A price service: one worker knows the prices, others ask it and wait for the answer.

::

    $ export RMQ_STORE=./store
    $ rmq run examples.quotes:app --processes 2 &    # answers
    $ python -m examples.quotes apples 3             # asks
    {'item': 'apples', 'total': 1.5}
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import msgspec

from rmqclient import App, Message, Producer

PRICES = {"apples": 0.5, "pears": 0.75}

app = App()


@dataclass
class Order:
    """The request."""

    item: str
    count: int


@app.handler("quotes", group="pricing", replies=True)
def quote(order: Order) -> dict[str, object]:
    """Return the price of the order, which is the reply."""
    return {"item": order.item, "total": PRICES[order.item] * order.count}


def main(item: str, count: int) -> None:
    """Ask for a quote and print it."""
    with Producer(app.root) as producer:
        reply = producer.request(Message("quotes", Order(item, count)), timeout=10.0)
        print(msgspec.json.decode(reply.body))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
