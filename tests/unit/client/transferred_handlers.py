"""Handlers that are sent to another process."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmqclient.app import App
from rmqclient.workers import handler_transfer
from tests.support.transferred import Answer

REPOSITORY = Path(handler_transfer.__file__).parents[2]
LOG = logging.getLogger(__name__)


@dataclasses.dataclass
class Order:
    count: int


def app_of(*functions: Callable[..., Any]) -> App:
    app = App("store")
    for number, function in enumerate(functions):
        app.handler(f"topic-{number}", group="billing", tags="paid", threads=2)(function)
    return app


def values(answered: list[Answer]) -> list[Any]:
    return [each.value for each in answered]


def priced_by(rate: int) -> Callable[[Order], tuple[bool, int]]:
    def handle(order: Order) -> tuple[bool, int]:
        LOG.debug("an order for %d", order.count)
        return isinstance(order, Order), order.count * rate

    return handle


class Till:
    def __init__(self, rate: int) -> None:
        self.rate = rate

    def take(self, order: Order) -> int:
        return order.count * self.rate

    def __call__(self, order: Order) -> int:
        return -self.take(order)


def add(order: Order, more: int) -> int:
    return order.count + more
