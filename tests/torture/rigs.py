"""Every rig by its name, in the order of the page."""

from __future__ import annotations

from tests.torture import (
    archives,
    checker,
    compaction,
    delays,
    disk_full,
    failed_flush,
    failures,
    flips,
    fuzz,
    images,
    interleavings,
    kills,
    once,
    poison,
    power,
    recovery,
    spark_restarts,
    transactions,
)
from tests.torture.result import Rig

RIGS: dict[str, Rig] = {
    rig.name: rig
    for rig in (
        kills.RIG,
        transactions.RIG,
        once.RIG,
        compaction.RIG,
        delays.RIG,
        images.RIG,
        power.RIG,
        failed_flush.RIG,
        flips.RIG,
        fuzz.RIG,
        failures.RIG,
        disk_full.RIG,
        recovery.RIG,
        poison.RIG,
        interleavings.RIG,
        checker.RIG,
        archives.RIG,
        spark_restarts.RIG,
    )
}
