"""Words: what bytes of the lock file stand for, lengths of time and failed messages, as people say them."""

from __future__ import annotations

from collections.abc import Mapping

_ROLES = {
    1: "the gate for opening and closing",
    2: "the housekeeper's role",
    3: "topics and config files",
    5: "the index",
    7: "the compaction of a queue",
    8: "following the primary",
    9: "sending the log",
    10: "the history and the marks",
}
"""By the byte of the lock file, :mod:`rmqclient.store.files.file_lock`."""
OWNERS = 1 << 32
"""From here on, each process that has the store open holds a byte, for the mutexes."""
_TAKEN_OVER = (2, 10, *range(4_096, 12_288))
"""The housekeeper's role, members and workers: leases end by themselves, and others go on. Without the history
and the marks, too: the next record has what is missing, and the next mark renames the file."""


def locked(byte: int) -> str:
    """Return what a byte of the lock file stands for."""
    kinds = {65_536: "a schedule", 12_288: "messages by key", 8_192: "workers", 4_096: "queues of groups"}
    kind = next((kind for begin, kind in kinds.items() if byte >= begin), f"byte {byte}")
    return _ROLES.get(byte, kind)


def is_waited_for(byte: int) -> bool:
    """Tell whether others can do nothing but wait for a byte while its holder stands still."""
    return byte not in _TAKEN_OVER


def age(seconds: float) -> str:
    """Return a length of time as people say it: ``40 s``, ``12 min``, ``3.5 h``, ``2.1 days``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def retries(waiting: Mapping[str, int]) -> str:
    """Return how many failed messages wait for a retry, and in which group most of them; empty if none does.

    They are in no lag and delay no other message, so a group is well with them; one whose every message fails, too.
    """
    if not (total := sum(waiting.values())):
        return ""
    group = max(waiting, key=lambda name: waiting[name])
    return f"{total:,} wait for a retry, {'all' if waiting[group] == total else 'most'} in {group}"
