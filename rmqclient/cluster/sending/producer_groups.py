"""Producer groups: those that this client is a member of, for as long as someone here needs them.

A broker asks one of the members of a group about an undecided transaction, and pushes replies to clients that are
members of some group. Members are known by their heartbeats.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

from rmqclient.cluster.client.client import ClusterClient


class ProducerGroups:
    """Counts who needs which group, by its name on the wire; safe for threads."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._changing = threading.Lock()
        self._users: Counter[str] = Counter()

    def join(self, group: str) -> Callable[[], None]:
        """Be a member of a group until the returned function is called; calling it twice does nothing."""
        with self._changing:
            self._users[group] += 1
            is_first = self._users[group] == 1
        if is_first:
            self._client.add_producer(group)
        left: list[None] = []
        return partial(self._leave, group, left)

    def _leave(self, group: str, left: list[None]) -> None:
        with self._changing:
            if left:
                return
            left.append(None)
            self._users[group] -= 1
            is_last = self._users[group] == 0
        if is_last:
            self._client.remove_producer(group)
