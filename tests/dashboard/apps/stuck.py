"""A shop in which everything stands still: a handler that hangs, steps that fail or wait, and schedules in trouble."""

from __future__ import annotations

import datetime
import threading

from rmqclient import App, ReceivedMessage, RetryPolicy

app = App("store")

LATER = RetryPolicy(delays=(30 * 86_400.0,))


class BankDown(Exception):
    """The bank does not answer."""


@app.handler("pictures", group="thumbnails")
def shrink(_message: ReceivedMessage) -> None:
    never_return()


@app.handler("payouts", group="bank", retry=LATER)
def pay_out(message: ReceivedMessage) -> None:
    message.steps("reserve", lambda: "reserved")
    message.steps("transfer", transfer)


def transfer() -> None:
    raise BankDown("no answer for 30 s")


@app.handler("holidays", group="approvals")
def take_leave(message: ReceivedMessage) -> None:
    message.steps("note", lambda: "noted")
    message.steps.wait_for("approved", timeout=datetime.timedelta(days=60))


@app.schedule(every=datetime.timedelta(minutes=1), topic="reports")
def report(_tick: datetime.datetime) -> str:
    return "fine"


@app.schedule(every=datetime.timedelta(minutes=1), topic="invoices")
def invoice(_tick: datetime.datetime) -> str:
    raise BankDown("no numbers")


@app.schedule(every=datetime.timedelta(minutes=1), topic="letters")
def write(_tick: datetime.datetime) -> str:
    never_return()
    return "never"


def never_return() -> None:
    threading.Event().wait()
