"""Patience: retries requests for a minute, because brokers restart and are busy at times."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from rmqclient.store.errors import QueueError

PATIENCE_S: Final = 60.0

_PAUSES_S: Final = (0.05, 0.2, 0.5, 1.0)

_T = TypeVar("_T")


def pause_s(failures: int) -> float:
    """Return the seconds to wait after a failure; ``failures`` came before it."""
    return _PAUSES_S[min(failures, len(_PAUSES_S) - 1)]


def patiently(ask: Callable[[], _T]) -> _T:
    """Return the result of ``ask``, retried after temporary errors. Raises its last error after a minute."""
    until, failures = time.monotonic() + PATIENCE_S, 0
    while True:
        try:
            return ask()
        except QueueError as error:
            if not error.retryable or time.monotonic() >= until:
                raise
            time.sleep(pause_s(failures))
            failures += 1
