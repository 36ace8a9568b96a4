"""Avoidance: brokers that were slow or failed get no messages for some time, if there are others.

==================  ================
a request took      avoided for
==================  ================
up to 0.55 s        not at all
from 0.55 s on      30 s
from 1 s on         60 s
from 2 s on         2 min
from 3 s on         3 min
from 15 s on        10 min
it failed           30 s
==================  ================

A quick success ends the avoidance. [MQFaultStrategy with sendLatencyFaultEnable, which avoids a broker for minutes
after one failure; a restarted broker is back after seconds, so here it is 30 s.]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_SLOW_S: Final = 0.55
_FAILED_FOR_S: Final = 30.0
_AVOIDED_FOR_S: Final = ((15.0, 600.0), (3.0, 180.0), (2.0, 120.0), (1.0, 60.0), (_SLOW_S, 30.0))


class Avoidance:
    """The names of avoided brokers. Safe for threads. ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def took(self, broker_name: str, seconds: float) -> None:
        """Note the seconds of an answered request."""
        if seconds >= _SLOW_S:
            pause = next(pause for least, pause in _AVOIDED_FOR_S if seconds >= least)
            self._until[broker_name] = self._clock() + pause
        elif self._until:
            self._until.pop(broker_name, None)

    def failed(self, broker_name: str) -> None:
        """Note a request that failed, or was refused for now."""
        self._until[broker_name] = self._clock() + _FAILED_FOR_S

    def __contains__(self, broker_name: str) -> bool:
        """Return whether a broker should be avoided."""
        return broker_name in self._until and self._clock() < self._until[broker_name]

    def __bool__(self) -> bool:
        """Return whether any broker may be avoided."""
        return bool(self._until)
