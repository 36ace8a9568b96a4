"""Losses: what a consumer does when its process loses a thread of the library."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rmqclient.store.threads import guarded
from rmqclient.store.threads.guarded import Loss


class Losses:
    """Calls ``act`` at the first loss; safe for threads."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.first: Loss | None = None
        """The first loss; None when all is well."""
        self._lock = threading.Lock()
        self._listeners = [act]

    def watch(self) -> None:
        """Look for losses from now on."""
        guarded.tell(self._note)

    def ignore(self) -> None:
        """Look for losses no more: the consumer ends. What was lost stays known."""
        guarded.tell_no_more(self._note)
        with self._lock:
            self._listeners.clear()  # one of them is usually the consumer's, which would be kept by itself

    def tell(self, listener: Callable[[], object]) -> None:
        """Call a function at the first loss, behind what was told before; at once if there was one."""
        with self._lock:
            self._listeners.append(listener)
            is_late = self.first is not None
        if is_late:
            listener()

    def check(self) -> None:
        """Raise ThreadLost if there was a loss."""
        if self.first is not None:
            raise self.first.as_error()

    def _note(self, loss: Loss) -> None:
        with self._lock:
            if self.first is not None:
                return
            self.first = loss
            listeners = list(self._listeners)
        for listener in listeners:
            listener()
