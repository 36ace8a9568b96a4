"""Producer groups: memberships of this client, by reference counts.

A broker checks an undecided transaction at a member of its group, and pushes replies only to members of some group.
Heartbeats make members known.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

from rmqclient.cluster.client.client import ClusterClient


class ProducerGroups:
    """Counts the users of each group, by its name on the wire. Safe for threads."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._changing = threading.Lock()
        self._users: Counter[str] = Counter()

    def join(self, group: str) -> Callable[[], None]:
        """Join a group until the returned function is called; calling that twice does nothing."""
        with self._changing:
            self._users[group] += 1
            is_first = self._users[group] == 1
        if is_first:
            self._client.heartbeats.add_producer(group)
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
            self._client.heartbeats.remove_producer(group)
