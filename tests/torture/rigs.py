"""Every rig by its name, in the order of the page."""

from __future__ import annotations

from tests.torture.damage import clones, disk_full, failed_flush, failures, flips, fuzz, recovery, vanishing_disk
from tests.torture.kills import compaction, counters, delays, interleavings, kills, once, poison, standing, transactions
from tests.torture.replicas import power as power_of_pairs
from tests.torture.replicas import replication
from tests.torture.result import Rig
from tests.torture.served import serve_fuzz, serve_group, serve_kills, serve_languages, serve_soak
from tests.torture.steps import steps
from tests.torture.wholes import archives, checker, cluster, dashboard, images, memory, power, spark_restarts

RIGS: dict[str, Rig] = {
    rig.name: rig
    for rig in (
        kills.RIG,
        kills.CONTAINERS,
        standing.RIG,
        transactions.RIG,
        once.RIG,
        compaction.RIG,
        counters.RIG,
        delays.RIG,
        images.RIG,
        power.RIG,
        replication.RIG,
        power_of_pairs.RIG,
        failed_flush.RIG,
        vanishing_disk.RIG,
        flips.RIG,
        fuzz.RIG,
        failures.RIG,
        disk_full.RIG,
        clones.RIG,
        recovery.RIG,
        poison.RIG,
        steps.RIG,
        interleavings.RIG,
        checker.RIG,
        archives.RIG,
        spark_restarts.RIG,
        cluster.WORKERS,
        cluster.BROKERS,
        serve_fuzz.RIG,
        serve_group.RIG,
        serve_kills.RIG,
        serve_languages.RIG,
        serve_soak.RIG,
        dashboard.RIG,
        memory.RIG,
    )
}
