"""Returned goods: refund, ask, remind and close, over weeks, in one function that may be killed anywhere.

::

    $ export RMQ_STORE=./store
    $ rmq run examples.returns:app --processes 2 &
    $ python -m examples.returns 4711                                     # prints the id of the message
    $ rmq message trace ID                                                # what is finished, and what it waits for
    $ rmq message signal ID inspected '{"by": "Ada", "fine": true}' --group returns
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta

from rmqclient import App, Message, ReceivedMessage
from rmqclient.errors import SignalTimeout

PATIENCE = timedelta(days=14)

app = App()


@dataclass
class Inspection:
    """What somebody in the warehouse says, days later."""

    by: str
    fine: bool


@dataclass
class Refund:
    """What the bank says."""

    number: str
    cents: int


def mail(order: str, what: str, text: str = "") -> None:
    """Write to the customer, which is a message of the topic ``mails`` here. Its key keeps it from being sent twice."""
    with app.producer() as producer:
        producer.send_once(Message("mails", {"order": order, "what": what, "text": text}), f"{order}-{what}")


def refund(order: str) -> Refund:
    """Pay the money back. The bank knows the order, and would pay it once only."""
    return Refund(f"R-{order}", 1_999)


@app.handler("returns", group="returns")
def handle(order: str, message: ReceivedMessage) -> None:
    """Take goods back: no step that is finished runs again, whatever happens between."""
    step = message.steps
    step("confirm", mail, order, "confirmed")
    try:
        inspection = step[Inspection].wait_for("inspected", timeout=PATIENCE)
    except SignalTimeout:
        step("give up", mail, order, "missing")
        return
    if not inspection.fine:
        step("refuse", mail, order, "refused", f"{inspection.by} cannot take it back")
        return
    paid = step("refund", refund, order)
    step.sleep(days=3)
    step("close", mail, order, "closed", f"did {paid.number} arrive?")


if __name__ == "__main__":
    with app.producer() as producer:
        print(producer.send("returns", sys.argv[1]).message_id)
