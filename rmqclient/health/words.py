"""Words: the states of queues, groups and workers, as ``rmq check``, ``rmq top``, lists and the dashboard show them.

===============================  ==================================================================================
state                            meaning
===============================  ==================================================================================
``hung 40 s in orders 2:7731``   a handler has run longer than it should: topic, queue id, queue offset
``behind retention: 12 lost``    so many messages were removed before the group had finished them
``no members``                   there are messages, and no process consumes the group
``no owner``                     the group has members, and none of them has this queue just now
``a file cannot be read``        a damaged or missing file of the store stands in the way
``a retry cannot be stored``     a failed message stays where it is, and is tried again in place
``flow control: span``           the consumer takes nothing: ``messages``, ``bytes`` or ``span`` is at its limit
``suspended: a message failed``  an ordered queue waits for the next attempt
``paused``                       by ``rmq group pause``
``retrying``                     no new message; failed ones wait for their next attempt
``running``                      messages are delivered
``idle``                         everything is finished
===============================  ==================================================================================

The table is in order, the worst first: a group has the worst state of its queues.
"""

from __future__ import annotations

from collections.abc import Iterable

FLOW_CONTROLS = (
    "none",
    "flow control: messages",
    "flow control: bytes",
    "flow control: span",
    "a file cannot be read",
    "suspended: a message failed",
    "paused",
    "retrying",
    "a retry cannot be stored",
)
"""By the code in the runtime file. A test compares them with :class:`rmqclient.delivery.process_queue.FlowControl`."""

_ROLES = {
    1: "the gate for opening and closing",
    2: "the housekeeper's role",
    3: "topics and config files",
    5: "the index",
    7: "the compaction of a queue",
    8: "following the primary",
    9: "sending the log",
}
"""By the byte of the lock file, :mod:`rmqclient.store.files.file_lock`."""
OWNERS = 1 << 32
"""From here on, each process that has the store open holds a byte, for the mutexes."""
_TAKEN_OVER = (2, *range(4_096, 12_288))
"""The housekeeper's role, members and workers: leases end by themselves, and others go on."""

_WORST_FIRST = (
    "hung",
    "behind retention",
    "no members",
    "no owner",
    "a file cannot be read",
    "a retry cannot be stored",
    "flow control",
    "suspended",
    "paused",
    "retrying",
    "running",
    "idle",
)


def queue_state(
    *, lag: int, lost: int = 0, paused: bool = False, has_owner: bool, flow_control: int = 0, held_attempts: int = 0
) -> str:
    """Return the state of one queue of a group."""
    if lost:
        return f"behind retention: {lost:,} lost"
    if paused:
        return "paused"
    if not has_owner:
        return "no owner" if lag else "idle"
    words = FLOW_CONTROLS[flow_control] if flow_control < len(FLOW_CONTROLS) else "none"
    if words in ("none", "paused"):
        words = "retrying" if held_attempts else ("running" if lag else "idle")
    return words


def group_state(queue_states: Iterable[str], *, members: int, lag: int) -> str:
    """Return the state of a group from those of its queues."""
    worst = min(queue_states, key=severity, default="idle")
    if not members and lag and severity(worst) > severity("no members"):
        return "paused, no members" if worst == "paused" else "no members"
    return worst


def worker_state(state: str, *, message_age_s: float | None, hung_after_s: float, place: str | None = None) -> str:
    """Return the state of a worker; ``place`` is that of the message which its handler runs."""
    if message_age_s is None:
        return state
    where = f" in {place}" if place else ""
    if message_age_s > hung_after_s:
        return f"hung {message_age_s:.0f} s{where}"
    return f"running{f' {place}' if place else ''} for {message_age_s:.1f} s"


def place(topic: str, queue_id: int, queue_offset: int) -> str:
    """Return the place of a message, as ``orders 2:7731``."""
    return f"{topic} {queue_id}:{queue_offset}"


def severity(state: str) -> int:
    """Return where a state stands in the table; the worst is 0, an unknown one is as harmless as running."""
    for number, begin in enumerate(_WORST_FIRST):
        if state.startswith(begin):
            return number
    return _WORST_FIRST.index("running")


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
