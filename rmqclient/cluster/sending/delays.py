"""Delays: properties by which brokers deliver a message later.

=======================  =====================================================  ======================================
asked for                property                                               brokers
=======================  =====================================================  ======================================
a delay level            ``DELAY``: 1 to 18                                     all
a time                   ``TIMER_DELIVER_MS``: ms since 1970, exact to 1 s      5.0 and later; by default at most three
                                                                                days ahead [timerMaxDelaySec]
=======================  =====================================================  ======================================
"""

from __future__ import annotations

import time
from typing import Final

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.sending.queue_choice import QueueChoice
from rmqclient.errors import NotOnCluster
from rmqclient.remoting.bodies import Heartbeat
from rmqclient.remoting.table import RequestCode, request
from rmqclient.store import delay_ms

FIRST_WITH_TIMER: Final = 413
"""Version number of V5_0_0."""

_LEVELS: Final = range(1, 19)
_OF_A_WAIT: Final = ("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS")


class Delays:
    """The delays that the brokers of a topic support."""

    def __init__(self, client: ClusterClient, choice: QueueChoice) -> None:
        self._client = client
        self._choice = choice
        self._versions: dict[str, int] = {}

    def properties(self, topic: str, delay_level: int, due_ms: int) -> dict[str, str]:
        """Return the properties of a delay. ``due_ms`` is ms since 1970, 0 for no time.

        Raises ValueError for a level outside 0 to 18, NotOnCluster for a time if a broker has no timer.
        """
        if delay_level:
            return {"DELAY": str(_checked(delay_level))}
        if not due_ms:
            return {}
        if not self.have_timer(topic):
            raise NotOnCluster(
                "this cluster has brokers of RocketMQ 4, which know only delay levels: send with delay_level=1 to 18, "
                "or use brokers of RocketMQ 5"
            )
        return {"TIMER_DELIVER_MS": str(due_ms)}

    def of_retry(self, topic: str, delay_level: int, due_ms: int) -> dict[str, str]:
        """Return the properties of the delay before a retry.

        Brokers without a timer get the shortest sufficient level; the longest is two hours.
        """
        if delay_level or not due_ms or self.have_timer(topic):
            return self.properties(topic, delay_level, due_ms)
        wait_ms = due_ms + -time.time_ns() // 1_000_000  # rounded up, as ``due_ms`` was
        return {"DELAY": str(next((level for level in _LEVELS if delay_ms(level) >= wait_ms), _LEVELS[-1]))}

    def have_timer(self, topic: str) -> bool:
        """Return whether every broker of a topic has a timer. Raises as a send."""
        return all(self._version(broker_name) >= FIRST_WITH_TIMER for broker_name in self._choice.brokers(topic))

    def _version(self, broker_name: str) -> int:
        """Return the version of a broker. One without a heartbeat yet, because no route has it, is asked now."""
        address = self._client.brokers.address(broker_name)
        version = self._client.heartbeats.version(address) or self._versions.get(address)
        if version is None:
            beat = request(RequestCode.HEART_BEAT, Heartbeat(self._client.client_id).encode())
            version = self._versions[address] = self._client.call(address, beat).version
        return version


def without_wait(properties: dict[str, str]) -> dict[str, str]:
    """Return properties without those of an earlier delay."""
    return {name: value for name, value in properties.items() if name not in _OF_A_WAIT}


def _checked(delay_level: int) -> int:
    if delay_level not in _LEVELS:
        raise ValueError(f"delay_level={delay_level}: the levels are 1 to {_LEVELS[-1]}")
    return delay_level
