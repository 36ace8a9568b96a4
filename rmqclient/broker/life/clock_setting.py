"""Clock setting: moves the server's clock forward, for tests of clients.

The setting ``advanceClock`` of request 25 moves it by a number of milliseconds (``mqadmin updateBrokerConfig -k
advanceClock -v 600000``). Delay levels, timer messages, checks of transactions and retention follow; time that clients
measure themselves does not. Only a server with a directory of its own (``--ephemeral``) accepts it.
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
        """Move the clock if this request asks for it."""
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
    """Parse the value of the setting. Raises ValueError unless it is whole milliseconds, 0 or more."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len("1000000000000"):
        raise ValueError(f"{SETTING}={text!r:.80}: give whole milliseconds, such as 600000 for ten minutes")
    return timedelta(milliseconds=int(digits))
