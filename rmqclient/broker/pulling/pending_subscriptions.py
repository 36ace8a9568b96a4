"""Pending subscriptions: pulls whose subscription is newer than the one from the heartbeats.

A consumer that changes its subscription, or whose queues change, pulls with the new version while the heartbeat with
that version is still under way. RocketMQ's broker answers 25, and the client waits for a second; some clients get 25
while their heartbeats are skipped. Here such a pull waits for the heartbeat, and is answered 25 after a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from rmqclient.broker.request import Request
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

LONGEST_WAIT_S: Final = 1.0
"""Seconds after which a pull is answered with SUBSCRIPTION_NOT_LATEST."""

_LOOK_S: Final = 0.02
_MOST_WAITING: Final = 10_000
"""Pulls that wait, at most; beyond that all are answered."""


class PendingSubscriptions:
    """The pulls that wait for a heartbeat. For the thread of the event loop.

    ``is_late`` returns whether a pull's heartbeat is still missing. ``pull`` answers a pull.
    """

    def __init__(self, is_late: Callable[[Request], bool], pull: Callable[[Request], Frame | None]) -> None:
        self._is_late = is_late
        self._pull = pull
        self._until: dict[Request, float] = {}

    def wait(self, request: Request) -> None:
        """Answer a pull after its heartbeat, or at its time-out."""
        loop = asyncio.get_running_loop()
        if not self._until:
            loop.call_later(_LOOK_S, self._look)
        self._until[request] = loop.time() + LONGEST_WAIT_S

    def drain(self) -> None:
        """Answer all waiting pulls."""
        for request in list(self._until):
            self._end(request)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        is_crowded = len(self._until) > _MOST_WAITING
        try:
            for request, until in list(self._until.items()):
                if is_crowded or loop.time() >= until or not request.peer.is_open or not self._is_late(request):
                    self._end(request)
        finally:
            if self._until:
                loop.call_later(_LOOK_S, self._look)

    def _end(self, request: Request) -> None:
        del self._until[request]
        try:
            answer = self._pull(request)
        except Exception as error:  # noqa: BLE001 - the other pulls wait for this turn, too
            _log.exception("a pull of %s that waited for a heartbeat failed", request.peer.remote)
            answer = request.failure(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__} {error}")
        if answer is not None:
            request.answer(answer)
