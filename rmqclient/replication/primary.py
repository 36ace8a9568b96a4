"""Primary: listens for replicas, and serves each of them by a sender."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Final

from rmqclient.errors import CannotListen
from rmqclient.replication.acks.ack_publisher import AckPublisher
from rmqclient.replication.acks.connected import Connections
from rmqclient.replication.returning.fencing import Telling
from rmqclient.replication.sender import Sender, Strangers
from rmqclient.store import MessageStore, take_no_signals
from rmqclient.store.closing import Closing
from rmqclient.store.settings.replication import ASYNC, Replication
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_BACKLOG: Final = 16
_PAUSE_S: Final = 0.1
_MOST_REPLICAS: Final = 16
"""Connections served at once, at most. There is no access check: any client of the port can read the whole log."""


class Primary(Closing):
    """The port for replicas of one open store. A context manager; leaving it ends every connection."""

    def __init__(self, store: MessageStore, host: str, port: int, replication: Replication = ASYNC) -> None:
        """``port`` 0 picks a free one, which :meth:`start` returns. ``replication`` is what sends wait for."""
        self._store = store
        self._acks = AckPublisher(store, replication, self.connections)
        self._host, self._port = host, port
        self._socket: socket.socket | None = None
        self._senders: list[Sender] = []
        self._telling = Telling(store)
        self._list = Connections(store, self.connections)
        self._strangers = Strangers()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = GuardedThread(target=self._accept, name="rmq-ha-accept")

    def start(self) -> tuple[str, int]:
        """Listen, and let sends wait for replicas; return host and port.

        Raises StoreBusy if another process serves replicas of the store, CannotListen, StoreFull.
        """
        self._store.log_sending.begin()
        self._socket = self._listen()
        self._acks.start()
        self._thread.start()
        self._telling.start()
        self._list.start()
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    def _listen(self) -> socket.socket:
        try:
            family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
            return socket.create_server((self._host, self._port), family=family, backlog=_BACKLOG)
        except OSError as error:
            self._store.log_sending.end()
            where = f"{self._host}:{self._port}"
            raise CannotListen(f"cannot listen for replicas on {where}: {error.strerror or error}") from error

    def replicas(self) -> dict[str, int | None]:
        """Return the last report of each connected replica, by its address."""
        with self._lock:
            return {sender.name: sender.reported for sender in self._senders if sender.is_open}

    def connections(self) -> list[Sender]:
        """Return the open connections, the oldest first. Takes no lock, because ending connections call it."""
        return [sender for sender in list(self._senders) if sender.is_open]

    def close(self) -> None:
        """Stop listening, and end every connection. Closing twice does nothing."""
        listening, self._socket = self._socket, None
        if listening is None:
            return
        self._ended.set()
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        listening.close()
        self._thread.join()
        self._telling.close()
        self._list.close()
        self._acks.close()
        for sender in self._senders:
            sender.close()
        self._senders.clear()
        self._store.log_sending.end()

    def _accept(self) -> None:
        take_no_signals()
        listening = self._socket
        while listening is not None and not self._ended.is_set():
            try:
                connection, address = listening.accept()
                self._serve(connection, f"{address[0]}:{address[1]}")
            except Exception as error:  # noqa: BLE001 - such as no free descriptor or thread
                if not self._ended.is_set():
                    _log.warning("a replica could not be served: %s; waiting for the next one", error)
                    self._ended.wait(_PAUSE_S)

    def _serve(self, connection: socket.socket, name: str) -> None:
        with self._lock:
            self._forget_gone()
            if len(self._senders) >= _MOST_REPLICAS:
                _log.warning("replica %s is not served: %d others are connected", name, len(self._senders))
                connection.close()
                return
            sender = Sender(self._store, connection, name, self._acks.look, self._strangers)
            self._senders.append(sender)
        try:
            sender.start()
        except BaseException:
            sender.close()
            raise

    def _forget_gone(self) -> None:
        for sender in [sender for sender in self._senders if not sender.is_open]:
            sender.close()
            self._senders.remove(sender)
