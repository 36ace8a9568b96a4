"""Handlers: they run in the workers of ``manage.py rmq run``, which find this module by its name."""

from __future__ import annotations

from dataclasses import dataclass

from examples.django_shop.shop.models import Bill
from rmqclient import ReceivedMessage
from rmqclient.frameworks.django import Inbox, app

CENTS = {"apples": 50, "pears": 75}

inbox = Inbox("billing")


@dataclass
class Ordered:
    """The body of a message of the topic ``orders``."""

    number: int
    item: str
    count: int


@app.handler("orders", group="billing", threads=2)
def bill(order: Ordered, message: ReceivedMessage) -> None:
    """Bill an order once, however often its message comes."""
    with inbox.once(message) as is_first:
        if is_first:
            Bill.objects.create(order_number=order.number, cents=CENTS[order.item] * order.count)
