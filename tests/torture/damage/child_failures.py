"""What the process does whose system calls fail: a short life of a store, in steps, each of which may be refused.

``python -m tests.torture.damage.child_failures`` has everything imported and has lived that life once. It reads ``root
notes`` lines from standard input; for each it forks a child, says its process id, lets it live at the next line, and
says how it ended.

The child says what happened by lines of its notes::

    i number           it is about to send a message
    o number           the send has returned
    r number           the send was refused, and the error says that nothing was stored
    a offset           an acknowledgement was taken
    e class text       a step was refused with an error of store/errors.py
    x text             a step ended with anything else, or an acknowledged message came again
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.errors import QueueError, StorePoisoned
from rmqclient.store.kernel._kernel import Appender
from tests.support.stores import SMALL, SPAN, TOPIC, body_of, grant_of

LONGEST_LIFE_S = 30
BODY_BYTES = 2_000
OPENINGS = 3


class Life:
    """The steps, and what is said about them."""

    def __init__(self, root: Path, notes: int) -> None:
        self._root = root
        self._notes = notes
        self._sent = 0
        self._acknowledged: set[int] = set()
        self._poisoned = False

    def live(self) -> None:
        """Open, send, roll, flush, take, write offsets, close; twice, because the second opening finds things."""
        for count in (40, 8):
            store = self._open()
            if store is not None:
                self._work(store, count)

    def _work(self, store: MessageStore, count: int) -> None:
        appender = store.appenders.make(
            lambda topic: store.topics.create(topic, 1), lambda body: str(body).encode(), prepare=False
        )
        self._send(appender, count)
        self._try(store.flusher.flush_timed)
        self._try(store.appenders.prepare_next_file)
        self._try(lambda: self._consume(store))
        self._try(store.offsets.persist)
        self._try(store.index.catch_up)
        self._try(store.flusher.flush_thorough)
        self._try(lambda: store.topics.create("another", 2))
        self._send(appender, count // 4)
        self._try(lambda: store.flusher.wait_until_flushed(store.state.published_to))
        self._try(store.close)

    def _open(self) -> MessageStore | None:
        opened: list[MessageStore] = []
        for _ in range(OPENINGS):
            if self._try(lambda: opened.append(open_store(self._root, SMALL, housekeeping=False))):
                if self._poisoned:  # an opening after a failed flush goes by the disk, as after a power cut
                    self._acknowledged.clear()
                return opened[0]
        return None

    def _send(self, appender: Appender, count: int) -> None:
        for number in range(self._sent, self._sent + count):
            message = Message(TOPIC, body_of(number, BODY_BYTES))
            self._say(f"i {number}")
            if self._try(partial(appender.append, message), number):
                self._say(f"o {number}")
        self._sent += count

    def _consume(self, store: MessageStore) -> None:
        grant = grant_of(store)
        for message in grant.take(20, SPAN):
            if message.queue_offset in self._acknowledged:
                self._say(f"x delivered again: {message.queue_offset}")
            if message.queue_offset % 3 and grant.acknowledge(message):
                self._acknowledged.add(message.queue_offset)
                self._say(f"a {message.queue_offset}")

    def _try(self, step: Callable[[], object], number: int | None = None) -> bool:
        try:
            step()
        except QueueError as error:
            if number is not None and not error.stored:
                self._say(f"r {number}")
            self._say(f"e {type(error).__name__} {error}")
            self._poisoned |= isinstance(error, StorePoisoned)
        except BaseException as error:  # noqa: BLE001 - it is what the rig looks for
            self._say(f"x {type(error).__name__} {traceback.format_exc()}")
        else:
            return True
        return False

    def _say(self, text: str) -> None:
        # Not by write(), which may be the call that is made to fail
        os.writev(self._notes, [text.replace("\n", " | ").encode(errors="replace") + b"\n"])


def main() -> None:
    """Fork a child for each line of standard input."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    with tempfile.TemporaryDirectory() as scratch:
        _live(Path(scratch, "store"), _opened(Path(scratch, "notes")))
    for line in sys.stdin:
        root, notes = line.rstrip("\n").split("\t")
        descriptor = _opened(Path(notes))  # here, where no call fails
        child = os.fork()
        if child == 0:
            signal.sigwait({signal.SIGUSR1})
            _live(Path(root), descriptor)
            os._exit(0)
        os.close(descriptor)
        print(child, flush=True)
        sys.stdin.readline()
        os.kill(child, signal.SIGUSR1)
        print(os.waitpid(child, 0)[1], flush=True)


def _opened(notes: Path) -> int:
    return os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _live(root: Path, notes: int) -> None:
    signal.alarm(LONGEST_LIFE_S)
    Life(root, notes).live()
    signal.alarm(0)


if __name__ == "__main__":
    main()
