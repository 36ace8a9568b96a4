"""Request: a client's request, its connection, and its answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rmqclient.broker.address import Address
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields, response


class Peer(Protocol):
    """A client's connection, as handlers see it. For the thread of the event loop."""

    @property
    def remote(self) -> Address:
        """The client's address."""

    @property
    def local(self) -> Address:
        """The advertised address, or the one that the client connected to."""

    @property
    def is_open(self) -> bool:
        """Whether frames can be sent to the client."""

    def send(self, frame: Frame) -> None:
        """Send a frame. Does nothing if the connection has ended."""

    def call(self, request: Frame, timeout_s: float, done: Callable[[Frame | None], None]) -> None:
        """Send a request to the client; ``done`` gets the answer, or None at the time-out or the connection's end."""

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` when the connection ends, or now if it has ended."""


def _allow(topic: str, *, writes: bool) -> None:
    """Allow everything, because there are no access keys."""


def _reads_all(_: str) -> bool:
    return True


class CheckTopic(Protocol):
    """Checks whether the client of a request may read a topic, or write to it."""

    def __call__(self, topic: str, *, writes: bool) -> None:
        """Raise AnswerError if the client may not."""


class Request:
    """One request; its fields have long names and typed values.

    A handler that has to look up the topic of a request calls ``check_topic``. One that lists groups includes those
    for which ``reads_group`` is true.
    """

    __slots__ = ("__weakref__", "_fields", "check_topic", "frame", "peer", "reads_group")

    def __init__(self, frame: Frame, peer: Peer) -> None:
        self.frame = frame
        self.peer = peer
        self.check_topic: CheckTopic = _allow
        self.reads_group: Callable[[str], bool] = _reads_all
        self._fields: dict[str, Any] | None = None

    @property
    def code(self) -> int:
        """The request code."""
        return self.frame.code

    @property
    def body(self) -> bytes:
        """The body; may be empty."""
        return self.frame.body

    @property
    def fields(self) -> dict[str, Any]:
        """The typed fields of the header. Raises HeaderError for a missing field or a wrong type."""
        if self._fields is None:
            self._fields = request_fields(self.frame)
        return self._fields

    def success(self, body: bytes = b"", remark: str | None = None, **fields: object) -> Frame:
        """Return an answer for success, with the fields of its header."""
        return response(self.frame, ResponseCode.SUCCESS, body, remark, **fields)

    def failure(self, code: int, remark: str, **fields: object) -> Frame:
        """Return an answer for failure; ``remark`` names the value and the limit."""
        return response(self.frame, code, b"", remark, **fields)

    def answer(self, frame: Frame) -> None:
        """Send a delayed answer, unless the request is oneway."""
        if not self.frame.is_oneway:
            self.peer.send(frame)


Handler = Callable[[Request], Frame | None]
"""Answers a request on the event loop's thread, so it must not block. None: the answer comes later, or never."""
