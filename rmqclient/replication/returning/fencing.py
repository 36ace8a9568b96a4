"""Fencing: a new primary tells the old one, which takes no more messages.

The old host may be unreachable. So its address is kept in ``<root>/replaced.json``, and the new primary's server
retries until the old one has answered. Only a store with the same history and an older epoch is fenced.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from rmqclient.errors import FrameError, QueueError
from rmqclient.replication.handshake import Hello, Wants, encode, greet, hello_of, read_hello, receiver
from rmqclient.replication.primary_client.broker_client import split
from rmqclient.store import MessageStore
from rmqclient.store.settings import document
from rmqclient.store.settings.lineage import read_lineage
from rmqclient.store.settings.replica_mark import Kind, read_mark
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_FILE: Final = Path("replaced.json")
_CONNECT_S: Final = 3.0
_ANSWER_S: Final = 8.0
"""Seconds for an answer. A stock primary, which cannot be fenced, shows after 5 s that it is one."""
_AGAIN_S: Final = 1.0


def be_fenced(store: MessageStore, connection: socket.socket, theirs: Hello) -> None:
    """Answer a primary that wants to replace this one. Raises OSError, StoreFull, StoreBusy."""
    own, mark = read_lineage(store.root), read_mark(store.root)
    newest = max(own.newest, mark.epoch if mark is not None else 0)
    if theirs.store_id == own.store_id and theirs.lineage.newest > newest:
        host = connection.getpeername()[0]
        end = store.fence(str(host), theirs.lineage.newest)
        _log.error(
            "%s is no longer a primary: %s has epoch %d; ends at %d", store.root, host, theirs.epochs[-1][0], end
        )
    connection.sendall(encode(hello_of(store)))


def note_replaced(root: Path, primary: str) -> None:
    """Record the primary that a promoted store replaces. Raises StoreFull."""
    document.replace_file(root / _FILE, orjson.dumps({"primary": primary}))


def forget_replaced(root: Path) -> None:
    """Forget the replaced primary, because it was told, or because the store was not promoted after all."""
    (root / _FILE).unlink(missing_ok=True)


def replaced(root: Path) -> str:
    """Return the replaced primary that was not told yet, or an empty string."""
    with suppress(orjson.JSONDecodeError, AttributeError):
        return str(orjson.loads(document.content(root / _FILE, missing=b"{}")).get("primary", ""))
    return ""


def tell(store: MessageStore, primary: str) -> bool:
    """Tell a primary that this store replaced it; return whether this is finished.

    A stock primary cannot be told, so it is finished. After OSError or FrameError try again.
    """
    own = hello_of(store, Wants.FENCE)
    with socket.create_connection(split(primary), _CONNECT_S) as connection:
        connection.settimeout(_ANSWER_S)
        theirs = greet(connection, own)
        if theirs is None or theirs.store_id != own.store_id or theirs.lineage.newest >= own.lineage.newest:
            _log.warning("%s is not an older primary of this store; nothing is sent to it", primary)
            return True
        answered = read_hello(receiver(connection))
        return answered is not None and answered.role == Kind.FENCED


class Telling:
    """Tells the old primary until it has answered, for the server of the new one. Ended by :meth:`close`."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._ended = threading.Event()
        self._thread = GuardedThread(target=self._run, name="rmq-ha-fence")

    def start(self) -> None:
        """Start, if a primary has to be told."""
        if replaced(self._store.root):
            self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set() and not tell_once(self._store):
            self._ended.wait(_AGAIN_S)


def tell_once(store: MessageStore) -> bool:
    """Tell the old primary, if there is one; return whether this is finished. May take some seconds."""
    primary = replaced(store.root)
    try:
        is_told = not primary or tell(store, primary)
    except (OSError, FrameError, QueueError) as error:
        _log.debug("%s was not told: %s", primary, error)
        return False
    if is_told:
        forget_replaced(store.root)
    return is_told
