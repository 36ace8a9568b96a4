"""Failures: requests that fail on demand, for tests of clients.

``310:3:2`` answers the next three requests 310 with code 2 and does nothing for them. Give it as ``--fail`` at the
start, or to a running server as the setting ``failNext`` of request 25 (``mqadmin updateBrokerConfig -k failNext -v
310:3:2``). Only a server with a directory of its own (``--ephemeral``) accepts it.
"""

from __future__ import annotations

import re
from typing import Final

from rmqclient.broker.request import Handler, Request
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import name_of
from rmqclient.remoting.frame import Frame

SETTING: Final = "failNext"
_FORM: Final = re.compile(r"([0-9]{1,6}):([0-9]{1,9}):([0-9]{1,5})")


class Failures:
    """Stands in front of the handlers."""

    def __init__(self, handler: Handler, told: tuple[str, ...] = ()) -> None:
        self._handler = handler
        self._left: dict[int, tuple[int, int]] = {}
        for text in told:
            self.tell(text)

    def tell(self, text: str) -> None:
        """Add a failure. Raises ValueError as :func:`read_failure`."""
        code, times, answer = read_failure(text)
        self._left.pop(code, None)
        if times:
            self._left[code] = times, answer

    def answer(self, request: Request) -> Frame | None:
        """Return the failure, if this request is to fail."""
        if request.code == RequestCode.UPDATE_BROKER_CONFIG and SETTING.encode() in request.body:
            return self._told_by(request)
        if request.code not in self._left:
            return self._handler(request)
        times, answer = self._left.pop(request.code)
        if times > 1:
            self._left[request.code] = times - 1, answer
        return request.failure(answer, f"{name_of(answer)}, as the test wants it: {times - 1} more to come")

    def _told_by(self, request: Request) -> Frame:
        for line in request.body.decode(errors="replace").splitlines():
            name, _, text = line.partition("=")
            if name.strip() == SETTING:
                try:
                    self.tell(text)
                except ValueError as error:
                    return request.failure(ResponseCode.SYSTEM_ERROR, str(error))
        return request.success()


def read_failure(text: str) -> tuple[int, int, int]:
    """Parse ``CODE:TIMES:ANSWER``; 0 times cancels a failure. Raises ValueError for another form."""
    found = _FORM.fullmatch(text.strip())
    if found is None or int(found[3]) == 0:
        raise ValueError(f"{text!r:.80} is not CODE:TIMES:ANSWER, such as 310:3:2, with an answer that means failure")
    code, times, answer = map(int, found.groups())
    return code, times, answer
