"""One producer process: sends numbered messages until it is told to stop, and writes down how each send ended.

``python -m tests.interop.cluster.kills.producing PLACE NUMBER PER_SECOND``
"""

from __future__ import annotations

import signal
import sys
import threading
import time

from rmqclient import Message, Producer
from rmqclient.errors import QueueError
from tests.checker.history import Kind, now
from tests.checker.plan import SEQUENCE_BITS
from tests.interop.cluster.kills import load

KEYS = 8
"""Sharding keys of one producer."""


def produce(place: str, producer_number: int, per_second: float, ended: threading.Event) -> None:
    """Send until ``ended``; a send whose outcome is unknown is not repeated here."""
    history = load.history()
    with Producer(place, group=f"load-{load.MARK}") as producer:
        count = 0
        while not ended.wait(1 / per_second):
            subject = producer_number << SEQUENCE_BITS | count
            count += 1
            history.write(Kind.SEND, now(), subject)
            try:
                sent = producer.send(Message(load.TOPIC, b"%d" % subject), f"{producer_number}-{count % KEYS}")
            except QueueError as error:
                print(f"{time.strftime('%H:%M:%S')} {subject}: {type(error).__name__}: {error}", flush=True)
                history.write(Kind.SEND_UNKNOWN, now(), subject)
            else:
                fields = {"offset": sent.queue_offset, "queue": load.number_of(sent.queue)}
                history.write(Kind.SENT, now(), subject, **fields)


def main() -> None:
    """Run until SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    produce(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), ended)


if __name__ == "__main__":
    main()
