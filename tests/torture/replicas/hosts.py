"""What runs on the two hosts: a primary that sends its log and appends, and a follower. Each is a forked process."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rmqclient.errors import LogsDiffer, NotReplicated, ReadOnlyReplica, ReplicaUnavailable
from rmqclient.replication import follower as follower_module
from rmqclient.replication import receiving, sender
from rmqclient.replication.follower import Follower
from rmqclient.replication.primary import Primary
from rmqclient.replication.receiving import Ack
from rmqclient.replication.returning.reclaiming import reclaim
from rmqclient.store import Message, open_store
from rmqclient.store.crash_points import CrashPoint, arm
from rmqclient.store.settings.replication import OnLost, Replication, Sync
from tests.support.stores import TOPIC, appender_of

NO_BROKER = "127.0.0.1:1"
LONGEST_LIFE_S = 60
SILENCE_S = 0.6
"""After so long a side is gone that says nothing; 20 s outside of the rig."""
FENCED, DIFFERS = 41, 42
"""Exit statuses: a primary that was fenced, and a follower whose log differs."""

Blow = tuple[CrashPoint, int] | None
"""Where a process dies, after so many passes."""


class Host:
    """A forked process, which is killed at the latest when the rig ends."""

    def __init__(self, work: Callable[[], None], blow: Blow = None) -> None:
        self.status: int | None = None
        self._pid = os.fork()
        if self._pid == 0:
            _live(work, blow)

    def is_alive(self) -> bool:
        """Tell whether it runs; when it has ended :attr:`status` says how."""
        if self.status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is None

    def wait(self, limit_s: float = LONGEST_LIFE_S) -> int | None:
        """Wait until it ends; return its exit status, None when it does not."""
        deadline = time.monotonic() + limit_s
        while self.is_alive() and time.monotonic() < deadline:
            time.sleep(0.002)
        return self.status

    def kill(self) -> None:
        """End it by ``kill -9``; also when it has ended."""
        if self.is_alive():
            os.kill(self._pid, signal.SIGKILL)
            self.wait()


def _live(work: Callable[[], None], blow: Blow) -> None:
    signal.alarm(LONGEST_LIFE_S)
    status = 0
    try:
        if blow is not None:
            arm(blow[0], passes=blow[1])
        work()
    except ReadOnlyReplica:
        status = FENCED
    except LogsDiffer as error:
        print(f"the follower: {error}", file=sys.stderr)
        status = DIFFERS
    except BaseException:  # noqa: BLE001 - the child must not return into the rig
        traceback.print_exc()
        status = 1
    finally:
        os._exit(status)


def be_impatient() -> None:
    """Let this process take a side for gone that was silent for a moment, and say often that it is there."""
    for module in (follower_module, receiving, sender):
        module.SILENCE_S = SILENCE_S  # type: ignore[attr-defined]
    receiving._LOOK_S = receiving.HEARTBEAT_S = sender._TELL_S = SILENCE_S / 6  # type: ignore[misc, attr-defined]


def primary(root: Path, port: int, notes: Path, first: int, *, on_lost: OnLost, sizes: tuple[int, ...]) -> None:
    """Send the log and append for ever; note the numbers of messages that are replicated. Raises StoreFenced."""
    be_impatient()
    descriptor = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    replication = Replication(Sync.DISK, on_lost, timeout_ms=100)
    with open_store(root, housekeeping=False) as store, Primary(store, "127.0.0.1", port, replication) as sending:
        sending.start()
        appender = appender_of(store)
        number = first
        while True:
            body = b"%d;" % number
            try:
                sent = appender.append(Message(TOPIC, body.ljust(sizes[number % len(sizes)], b".")))
                if sent.replicated:
                    os.write(descriptor, b"%d\n" % number)
            except (NotReplicated, ReplicaUnavailable):
                time.sleep(0.005)
            number += 1
            time.sleep(0.001)  # a sender that nobody holds up would fill thousands of files, which the judge reads


def quiet_primary(root: Path, port: int) -> None:
    """Send the log, and append nothing."""
    be_impatient()
    with open_store(root, housekeeping=False) as store, Primary(store, "127.0.0.1", port) as sending:
        sending.start()
        signal.pause()


def follower(root: Path, port: int) -> None:
    """Follow for ever. Raises LogsDiffer."""
    be_impatient()
    with open_store(root, housekeeping=False) as store, suppress(OSError):
        Follower(store, f"127.0.0.1:{port}", NO_BROKER, ack=Ack.DISK).run()


def settle(root: Path, port: int) -> None:
    """Take back from the replica what a primary has lost. Raises StoreFenced."""
    reclaim(root, "127.0.0.1", port, threading.Event())


@contextmanager
def kept_port() -> Iterator[int]:
    """Have a port that the kernel gives to nobody by chance, and where servers of the block can listen.

    A socket that is bound and does not listen does both, because servers are bound with SO_REUSEADDR, too.
    """
    with socket.socket() as keeping:
        keeping.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeping.bind(("127.0.0.1", 0))
        yield int(keeping.getsockname()[1])


def errors_are(host: Host, allowed: set[int | None]) -> str:
    """Return what is wrong with how a host ended; empty when nothing is."""
    killed = {-signal.SIGKILL, -signal.SIGALRM}
    return "" if host.status in allowed | killed else f"a process ended with {host.status}"
