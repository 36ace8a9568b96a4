"""Every fault that is planted, by the room of the product that it is planted in."""

from __future__ import annotations

from tests.planted.faults import (
    append,
    client,
    dashboard,
    delivery,
    groups,
    records,
    recovery,
    remoting,
    serving,
    upkeep,
    waiting,
)

FAULTS = [
    *append.FAULTS,
    *records.FAULTS,
    *groups.FAULTS,
    *recovery.FAULTS,
    *upkeep.FAULTS,
    *waiting.FAULTS,
    *delivery.FAULTS,
    *client.FAULTS,
    *remoting.FAULTS,
    *serving.FAULTS,
    *dashboard.FAULTS,
]
