"""Clock setting: for tests of clients, a server whose time is moved forward.

The setting ``advanceClock`` of request 25 moves it by so many milliseconds (``mqadmin updateBrokerConfig -k
advanceClock -v 600000``). Delay levels, timer messages, checks of transactions and retention follow; what clients time
for themselves does not. Only a server with a directory of its own (``--ephemeral``) can be told so.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from rmqclient.broker.request import Handler, Request
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import clock

SETTING: Final = "advanceClock"


class ClockSetting:
    """Stands in front of the handlers."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def answer(self, request: Request) -> Frame | None:
        """Move the clock, if this request says so."""
        if request.code != RequestCode.UPDATE_BROKER_CONFIG or SETTING.encode() not in request.body:
            return self._handler(request)
        for line in request.body.decode(errors="replace").splitlines():
            name, _, text = line.partition("=")
            if name.strip() == SETTING:
                try:
                    clock.advance(read_advance(text))
                except ValueError as error:
                    return request.failure(ResponseCode.SYSTEM_ERROR, str(error))
        return request.success()


def read_advance(text: str) -> timedelta:
    """Return the time of a setting. Raises ValueError for anything but whole milliseconds from 0 on."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len("1000000000000"):
        raise ValueError(f"{SETTING}={text!r:.80}: give whole milliseconds, such as 600000 for ten minutes")
    return timedelta(milliseconds=int(digits))
