"""What is shown of one call of a handler, and what the log does not say once more."""

from __future__ import annotations

import logging
import re

import pytest

from rmqclient import App, Batch, RetryPolicy, Suspend
from rmqclient.live.calls import Call, watched_by
from rmqclient.testing import Kit
from rmqclient.workers.development.terminal import Terminal


class Shop:
    """An application with one handler that does what it is told, and the calls that were seen."""

    def __init__(self, **options: object) -> None:
        self.app = App()
        self.calls: list[Call] = []
        self.app.middleware(watched_by(self.calls.append))
        function = self.bill_all if "batch" in options else self.bill
        self.app.handler("orders", "billing", **options)(function)  # type: ignore[arg-type]

    def bill(self, order: bytes) -> None:
        if order == b"fail":
            raise ValueError("no such\ncustomer")
        if order == b"later":
            raise Suspend(0.01)

    def bill_all(self, orders: list[bytes]) -> None:
        for order in orders:
            self.bill(order)

    def sees(self, *bodies: bytes) -> list[str]:
        with Kit(self.app) as kit:
            for body in bodies:
                kit.send("orders", body)
            kit.drain(raises=False)
        return [re.sub(r"[\d.]+ ms", "1 ms", f"{call.where}  {call.outcome}") for call in self.calls]


@pytest.mark.parametrize(
    ("options", "body", "shown"),
    [
        ({}, b"7", "orders -> bill (billing)  1 ms"),
        ({}, b"fail", "orders -> bill (billing)  failed after 1 ms, attempt 1 of 17: ValueError: no such customer"),
        (
            {"retry": RetryPolicy(max_retries=0)},
            b"fail",
            "orders -> bill (billing)  failed after 1 ms, a dead letter: ValueError: no such customer",
        ),
        (
            {"broadcast": True},
            b"fail",
            "orders -> bill (billing)  failed after 1 ms, dropped: ValueError: no such customer",
        ),
        ({"batch": Batch(2, linger=0)}, b"7", "orders -> bill_all (billing, 1 messages)  1 ms"),
        ({"order": "queue"}, b"later", "orders -> bill (billing)  after 1 ms: again in 0.01 s"),
    ],
)
def test_a_call_is_a_line_that_says_what_follows(options: dict[str, object], body: bytes, shown: str) -> None:
    assert Shop(**options).sees(body)[0] == shown


def test_the_traceback_begins_in_the_application() -> None:
    shop = Shop()
    shop.sees(b"fail")
    trace = shop.calls[0].trace
    assert trace.count("  File ") == 1
    assert 'raise ValueError("no such\\ncustomer")' in trace


def test_the_log_does_not_tell_a_failure_that_is_on_the_screen(caplog: pytest.LogCaptureFixture) -> None:
    terminal, shop = Terminal(), Shop()
    shop.sees(b"fail")
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [terminal.filter(record) for record in told] == [True] * len(told) != []
    terminal.tell(shop.calls[0])
    assert [terminal.filter(record) for record in told] == [False] * len(told)
