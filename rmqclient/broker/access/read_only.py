"""Read-only: refuses requests that write, before any handler sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.pulling.pull import COMMITS
from rmqclient.broker.request import Handler, Request
from rmqclient.broker.routes import Route
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame

_PULLS: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


class ReadOnly:
    """Stands in front of the handlers. ``route_of`` returns the route of a code, or None."""

    def __init__(self, route_of: Callable[[int], Route | None], handler: Handler, counters: Counters) -> None:
        self._route_of = route_of
        self._handler = handler
        self._counters = counters

    def answer(self, request: Request) -> Frame | None:
        """Refuse a request that writes, and clear the commit flag of a pull."""
        route = self._route_of(request.code)
        if route is not None and route.writes:
            text = f"the server was started with --read-only: {route.code.name} ({request.code}) would write"
            self._counters.refuse(Refusal.READ_ONLY, f"client {request.peer.remote} refused: {text}")
            return request.failure(ResponseCode.NO_PERMISSION, text)
        if request.code in _PULLS:
            flag = request.frame.fields.get("sysFlag", "")
            if flag.isascii() and flag.isdigit() and len(flag) < 10:
                request.frame.fields["sysFlag"] = str(int(flag) & ~COMMITS)
        return self._handler(request)
