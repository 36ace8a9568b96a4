"""``python -m tests.workers.services.child_sender ROOT MESSAGES`` sends so many messages of 8 KiB in batches."""

import sys

from rmqclient import Message, Producer

BODY_BYTES = 8 << 10
BATCH = 20
TOPIC = "orders"


def main(root: str, messages: int) -> None:
    """Send them all."""
    with Producer(root) as producer:
        for first in range(0, messages, BATCH):
            numbers = range(first, min(first + BATCH, messages))
            producer.send_batch([Message(TOPIC, b"%08d" % number + bytes(BODY_BYTES - 8)) for number in numbers])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
