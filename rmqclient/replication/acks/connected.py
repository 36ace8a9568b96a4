"""Connected: the connected replicas of a primary, in ``<root>/followers.json``, for other processes of the host.

The serving process writes the file when a replica comes or goes, and every few seconds while there are any. So an old
file is of a killed process and is ignored. It need not survive a power cut, so no write waits for the disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from rmqclient.errors import QueueError
from rmqclient.replication.handshake import Wants
from rmqclient.store import MessageStore, clock
from rmqclient.store.files.mapped_file import scratch_name
from rmqclient.store.files.sharing import open_for_owner
from rmqclient.store.settings import document
from rmqclient.store.threads.guarded import GuardedThread

if TYPE_CHECKING:
    from rmqclient.replication.sender import Sender

_FILE: Final = Path("followers.json")
_LOOK_S: Final = 0.5
_WRITE_S: Final = 5.0
_OLD_MS: Final = 15_000
"""Milliseconds since the last write after which the file's process is taken to have ended."""


@dataclass(frozen=True, slots=True)
class Connected:
    """One connected replica."""

    address: str
    """Its address, ``host:port``."""
    copy: str
    """Its copy id, ``host:directory``; empty for a slave of RocketMQ."""
    reports: str
    """What its reports mean: bytes on ``disk``, in ``memory``, or ``nowhere`` for an observer."""
    missing_bytes: int | None
    """Bytes of the log beyond its last report; None before the first one."""


def connected(root: Path) -> tuple[Connected, ...]:
    """Return the replicas that a store had a few seconds ago; empty if no process serves it.

    The list of a killed server is returned for 15 s.
    """
    try:
        found: Any = orjson.loads(document.content(root / _FILE, missing=b"{}"))
        if abs(clock.wall_ms() - found.get("written_ms", 0)) > _OLD_MS:
            return ()
        return tuple(Connected(**each) for each in found["replicas"])
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        return ()


class Connections:
    """Writes the list of one open store's connections, until :meth:`close`."""

    def __init__(self, store: MessageStore, senders: Callable[[], Sequence[Sender]]) -> None:
        self._store = store
        self._senders = senders
        self._ended = threading.Event()
        self._thread = GuardedThread(target=self._run, name="rmq-ha-list")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Write an empty list, and stop."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(OSError):  # readers ignore an old file
            (self._store.root / _FILE).unlink(missing_ok=True)

    def _run(self) -> None:
        known: list[tuple[str, bool]] = []
        written_at = 0.0
        while not self._ended.wait(_LOOK_S):
            found = self._list()
            present = [(each.address, each.missing_bytes is None) for each in found]
            if present != known or (found and time.monotonic() - written_at > _WRITE_S):
                known, written_at = present, time.monotonic()
                with suppress(OSError, QueueError):  # on a full disk the file gets old
                    _write(self._store.root, _rendered(found, clock.wall_ms()))

    def _list(self) -> list[Connected]:
        """Return the connected replicas that have reported; other connections may be of anything."""
        end = self._store.state.published_to
        return [_of(sender, end) for sender in self._senders() if sender.peer or sender.reported is not None]


def _write(root: Path, content: bytes) -> None:
    """Replace the file atomically. Raises OSError, StoreFull."""
    scratch = scratch_name(root)
    try:
        with open(scratch, "xb", opener=open_for_owner) as file:
            file.write(content)
        scratch.rename(root / _FILE)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def _of(sender: Sender, end: int) -> Connected:
    hello = sender.peer
    looks = hello is not None and hello.wants != Wants.FOLLOW
    reports = "nowhere" if looks else "disk" if sender.is_flushed else "memory"
    missing = None if sender.reported is None else max(0, end - sender.reported)
    return Connected(sender.name, "" if hello is None else hello.copy, reports, missing)


def _rendered(found: Sequence[Connected], now_ms: int) -> bytes:
    return orjson.dumps({"written_ms": now_ms, "replicas": [asdict(each) for each in found]})
