"""Read-only: a server that changes nothing refuses what would, before any handler sees it."""

from __future__ import annotations

from typing import Final

from rmqclient.broker.access.codes import COMMIT_BIT, WRITES
from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.request import Handler, Request
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame

_PULLS: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


class ReadOnly:
    """Stands in front of the handlers."""

    def __init__(self, handler: Handler, counters: Counters) -> None:
        self._handler = handler
        self._counters = counters

    def answer(self, request: Request) -> Frame | None:
        """Refuse a request that writes, and take the commit out of a pull."""
        if request.code in WRITES:
            name = RequestCode(request.code).name
            text = f"the server was started with --read-only: {name} ({request.code}) would write"
            self._counters.refuse(Refusal.READ_ONLY, f"client {request.peer.remote} refused: {text}")
            return request.failure(ResponseCode.NO_PERMISSION, text)
        if request.code in _PULLS:
            flag = request.frame.fields.get("sysFlag", "")
            if flag.isascii() and flag.isdigit() and len(flag) < 10:
                request.frame.fields["sysFlag"] = str(int(flag) & ~COMMIT_BIT)
        return self._handler(request)
