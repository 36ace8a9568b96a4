"""A producer of transactions that is killed: ``python -m tests.groups.processes.transaction_child ROOT JOURNAL FIRST``.

Its database is a journal: a number that stands there is done, and its message is to be sent. It does so for one number
after the other, from FIRST on, and answers for those of others by the journal.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path

from rmqclient import Decision, Message, ReceivedMessage, TransactionProducer

TOPIC, GROUP = "orders", "shop"


def is_done(journal: Path, number: int) -> bool:
    """Tell whether the number stands in the journal."""
    return b"%d\n" % number in journal.read_bytes().splitlines(keepends=True)


def main(root: Path, journal: Path, first: int) -> None:
    """Work until the kill: every third is rolled back, the others are done."""

    def check(message: ReceivedMessage) -> Decision:
        return Decision.COMMIT if is_done(journal, int(message.body)) else Decision.ROLLBACK

    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND)
    with TransactionProducer(root, group=GROUP, check=check) as producer:
        print("ready", flush=True)
        for number in itertools.count(first):
            with producer.transaction(Message(TOPIC, b"%d" % number)) as tx:
                time.sleep(0.002)  # work, so that most kills find a transaction in the middle of it
                if number % 3 == 0:
                    tx.rollback()
                else:
                    os.write(descriptor, b"%d\n" % number)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
