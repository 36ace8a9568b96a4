"""Every rig by its name, in the order of the page."""

from __future__ import annotations

from tests.torture import disk_full, failures, kills, recovery
from tests.torture.result import Rig

RIGS: dict[str, Rig] = {rig.name: rig for rig in (kills.RIG, failures.RIG, disk_full.RIG, recovery.RIG)}
