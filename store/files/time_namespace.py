"""Time namespace: whether the clock of this process is the one by which the others of a store judge it.

Leases and heartbeats are times since the boot of the host (CLOCK_BOOTTIME), which processes of one store compare with
each other. In a time namespace this clock is set off, see ``time_namespaces(7)``: to a process there, the living stand
still and may lose their queues, or the dead live on.
"""

from __future__ import annotations

import os
from typing import Final

_OFFSETS: Final = "/proc/self/timens_offsets"
"""Those of the namespace in which the children of this process begin, which is its own unless it has just left it."""


def clock_trouble() -> str | None:
    """Return in words why this process may not share a store with others of its host; None if it may.

    None, too, if the kernel has no time namespaces, or /proc is not mounted.
    """
    try:
        if os.readlink("/proc/self/ns/time") != os.readlink("/proc/self/ns/time_for_children"):
            return None
        with open(_OFFSETS, encoding="ascii") as file:
            offsets = {name: (int(seconds), int(rest)) for name, seconds, rest in map(str.split, file)}
    except OSError:
        return None
    seconds, nanoseconds = offsets.get("boottime", (0, 0))
    if not seconds and not nanoseconds:
        return None
    return (
        f"this process is in a time namespace, whose clock since boot is {seconds + nanoseconds / 1e9:+g} s from that "
        "of the host, so it could not tell who lives: start it in the time namespace of the host"
    )
