"""Broker client: sends requests to the primary's broker, one at a time.

A replica asks for a few documents every few seconds, as a stock slave does, so a blocking socket is enough.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rmqclient.errors import BrokerUnreachable
from rmqclient.remoting import bodies
from rmqclient.remoting.bodies import fastjson
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError, BodyError, FrameError, error_of
from rmqclient.remoting.frame import FrameReader, encode
from rmqclient.remoting.table import request
from rmqclient.store.closing import Closing
from rmqclient.store.settings.store_settings import StoreSettings

TIMEOUT_S: Final = 3.0
"""Seconds for a connection, and for each answer. [SlaveSynchronize]"""

_YOUNG_S: Final = 3.0
_PAUSE_S: Final = 0.1
_READ_BYTES: Final = 1 << 16
_SIZES: Final = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
_ENTRY_BYTES: Final = 20


class LogShape(NamedTuple):
    """Facts about a primary's log that a replica needs before the first byte."""

    settings: StoreSettings
    """The sizes of its files."""
    begin: int
    """Offset of the oldest byte."""
    end: int


class BrokerClient(Closing):
    """A connection to a broker, made by the first request. A context manager. For one thread.

    Every method raises BrokerUnreachable, AnswerError, BodyError and FrameError.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket: socket.socket | None = None
        self._reader = FrameReader()
        self._opaque = 0

    def close(self) -> None:
        """End the connection. The next request connects again."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._reader = None, FrameReader()

    def log_shape(self) -> LogShape:
        """Ask for the sizes of the store's files, and for begin and end of its log. [26, 28]"""
        settings = dict(
            line.partition("=")[::2] for line in self._ask(RequestCode.GET_BROKER_CONFIG).decode().splitlines()
        )
        answer = fastjson.read(self._runtime_info())
        table: Mapping[str, Any] = answer.get("table", {}) if isinstance(answer, dict) else {}
        try:
            sizes = [int(settings[name]) for name in _SIZES]
            return LogShape(
                StoreSettings(sizes[0], sizes[1] // _ENTRY_BYTES, sizes[2], sizes[3]),
                max(0, int(table["commitLogMinOffset"])),
                max(0, int(table["commitLogMaxOffset"])),
            )
        except (KeyError, ValueError) as error:
            raise BodyError(f"{self.address} does not say how its log is: {error}") from error

    def topics(self) -> bodies.TopicTable:
        """Ask for the topics. [21]"""
        return bodies.TopicTable.decode(self._ask(RequestCode.GET_ALL_TOPIC_CONFIG))

    def group_offsets(self) -> bodies.OffsetTable:
        """Ask for the offsets of all groups. [43]"""
        return bodies.OffsetTable.decode(self._ask(RequestCode.GET_ALL_CONSUMER_OFFSET))

    def delay_offsets(self) -> bodies.DelayOffsets:
        """Ask for the offsets of the delay levels. [45]"""
        return bodies.DelayOffsets.decode(self._ask(RequestCode.GET_ALL_DELAY_OFFSET))

    def group_settings(self) -> bytes:
        """Ask for the settings of groups, in the form of ``subscriptionGroup.json``. [201]"""
        return self._ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)

    def _runtime_info(self) -> bytes:
        """Ask for the broker's runtime info. A RocketMQ broker fails at that in its first second.

        [StoreStatsService.getPutTps]
        """
        deadline = time.monotonic() + _YOUNG_S
        while True:
            try:
                return self._ask(RequestCode.GET_BROKER_RUNTIME_INFO)
            except AnswerError as error:
                if error.code != ResponseCode.SYSTEM_ERROR or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)

    def _ask(self, code: RequestCode) -> bytes:
        """Return the body of the answer to a request without fields."""
        self._opaque += 1
        asked = request(code)
        asked.opaque = self._opaque
        try:
            self._open().sendall(encode(asked))
            while True:
                for answer in self._reader.feed(self._received()):
                    if answer.opaque == asked.opaque and answer.is_response:
                        if answer.code != ResponseCode.SUCCESS:
                            raise error_of(answer, self.address)
                        return answer.body
                if self._reader.damage is not None:
                    raise self._reader.damage
        except OSError as error:
            self.close()
            raise BrokerUnreachable(f"{self.address}: no answer to request {code.name}: {error}") from error
        except FrameError:
            self.close()  # the stream cannot be read after damage; the next request connects again
            raise

    def _open(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(split(self.address), TIMEOUT_S)
        return self._socket

    def _received(self) -> bytes:
        data = self._open().recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        return data


def split(address: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``; an IPv6 host is in brackets. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) <= 65_535:
        raise ValueError(f"{address!r} is not HOST:PORT with a port from 1 to 65535")
    return host.strip("[]"), int(port)


def broker_beside(primary: str) -> str:
    """Return the broker's address of a stock primary, whose HA port is the next one. [BrokerStartup]"""
    host, port = split(primary)
    if port == 1:
        raise ValueError(f"{primary!r}: there is no port before 1: say where its broker is")
    return f"[{host}]:{port - 1}" if ":" in host else f"{host}:{port - 1}"
