"""Every rig by its name, in the order of the page."""

from __future__ import annotations

from tests.torture import images, kills
from tests.torture.result import Rig

RIGS: dict[str, Rig] = {rig.name: rig for rig in (kills.RIG, images.RIG)}
