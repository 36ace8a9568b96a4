"""The load: numbered messages, and handlers that write down what they were called with.

It is the application of the workers, ``load.py:app``. A message's body is its number: producer << 40 | count. What a
process saw is a history of the checker (:mod:`tests.checker.history`), in a file of its own. A queue's number there is
the broker's place among the masters << 8 | queue id, and the thread is not used.
"""

from __future__ import annotations

import os
import threading
import time
from functools import cache
from pathlib import Path

from rmqclient import App, MessageQueue, ReceivedMessage
from tests.checker.history import History, Kind, now

MARK = os.environ.get("LOAD_MARK", "load")
TOPIC = f"Load-{MARK}"
GROUPS = (f"ordered-{MARK}", f"plain-{MARK}")
"""By the number that histories have: one handles each queue in order, one has threads."""
QUEUES = 4
"""Of each master."""

app = App(os.environ.get("LOAD_PLACE", "./store"))


_making = threading.Lock()


def history() -> History:
    """Return the history of this process; its number is unlike that of any other, dead ones included."""
    with _making:  # two threads that come first must not get one each
        return _history()


@cache
def _history() -> History:
    return History(Path(os.environ["LOAD_HISTORIES"]), time.time_ns() << 22 | os.getpid())


def number_of(queue: MessageQueue) -> int:
    """Return the number of a queue in histories."""
    letter = queue.broker_name.removeprefix("broker-")
    return (ord(letter) - ord("a") if letter else 0) << 8 | queue.queue_id


def handle(message: ReceivedMessage, group: int) -> None:
    """Write down that a handler begins and ends."""
    subject = int(message.body)
    fields = {"offset": message.queue_offset, "queue": number_of(message.queue), "group": group}
    history().write(Kind.HANDLE, now(), subject, attempt=min(message.delivery_attempt, 255), **fields)
    history().write(Kind.HANDLED, now(), subject, **fields)


@app.handler(TOPIC, group=GROUPS[0], order="queue", threads=2)
def in_order(message: ReceivedMessage) -> None:
    handle(message, 0)


@app.handler(TOPIC, group=GROUPS[1], threads=4)
def side_by_side(message: ReceivedMessage) -> None:
    handle(message, 1)
