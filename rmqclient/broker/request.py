"""Request: what a client asks, over which connection, and the answers to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from rmqclient.broker.address import Address
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields, response


class Peer(Protocol):
    """The connection of a client, as those who answer see it. Its methods are for the thread of the event loop."""

    @property
    def remote(self) -> Address:
        """Where the client is."""

    @property
    def local(self) -> Address:
        """The address by which the client came in, or the advertised one."""

    @property
    def is_open(self) -> bool:
        """Whether the client can still be told anything."""

    def send(self, frame: Frame) -> None:
        """Send a frame; nothing happens when the connection has ended."""

    def call(self, request: Frame, timeout_s: float, done: Callable[[Frame | None], None]) -> None:
        """Send a request to the client; ``done`` gets the answer, None after the time or the end of the connection."""

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` when the connection ends, at once if it has ended."""


def _allow(topic: str, *, writes: bool) -> None:
    """Allow everything, as without access keys."""


def _reads_all(_: str) -> bool:
    return True


class CheckTopic(Protocol):
    """Asks whether the client of a request may read a topic, or write to it."""

    def __call__(self, topic: str, *, writes: bool) -> None:
        """Raise AnswerError if the client may not."""


class Request:
    """One request, with its fields by their long names and as typed values.

    A handler that finds out only by its work which topic a request is about asks ``check_topic``. One that tells of all
    groups asks ``reads_group`` for each, and leaves the others out.
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
        """The body; empty when there is none."""
        return self.frame.body

    @property
    def fields(self) -> dict[str, Any]:
        """The typed fields of the header. Raises HeaderError for one that is missing or has a wrong type."""
        if self._fields is None:
            self._fields = request_fields(self.frame)
        return self._fields

    def success(self, body: bytes = b"", remark: str | None = None, **fields: object) -> Frame:
        """Return an answer that means success, with the fields of its header."""
        return response(self.frame, ResponseCode.SUCCESS, body, remark, **fields)

    def failure(self, code: int, remark: str, **fields: object) -> Frame:
        """Return an answer with another code, and a text that names the value and the limit."""
        return response(self.frame, code, b"", remark, **fields)

    def answer(self, frame: Frame) -> None:
        """Send an answer that took longer. A request that wants no answer gets none."""
        if not self.frame.is_oneway:
            self.peer.send(frame)


Handler = Callable[[Request], Frame | None]
"""Answers a request on the thread of the event loop, so it must not block. None: nothing now, and perhaps later."""


@runtime_checkable
class Draining(Protocol):
    """A room that holds requests until something comes, and can answer them before."""

    def drain(self) -> None:
        """Answer everything that is held with nothing. Runs on the thread of the event loop when the server ends."""
