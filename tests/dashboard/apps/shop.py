"""A shop whose handlers work, fail, and die, for the tests of the dashboard and for its pictures."""

from __future__ import annotations

import os
import time

from rmqclient import App, ReceivedMessage, RetryPolicy, StoreConfig

app = App("store", config=StoreConfig(commit_log_file_bytes=1 << 24))

QUICK = RetryPolicy(max_retries=1, delays=(0.5,))


class CardDeclined(Exception):
    """The bank says no."""


@app.handler("orders", group="billing", threads=2, retry=QUICK)
def bill(message: ReceivedMessage) -> None:
    order = message.body
    if b'"declined"' in order:
        raise CardDeclined(f"card of order {message.keys[0]} was declined")
    if b'"broken"' in order:
        raise KeyError("total")
    if b'"deadly"' in order and message.delivery_attempt == 1:
        os._exit(1)
    time.sleep(0.002)


@app.handler("orders", group="shipping", threads=2)
def ship(message: ReceivedMessage) -> None:
    time.sleep(0.004 if b'"slow"' not in message.body else 20.0)


@app.handler("payments", group="ledger")
def book(message: ReceivedMessage) -> None:
    time.sleep(0.001)
