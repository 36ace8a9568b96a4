"""States: what queues, groups and workers are doing, in the words that every view shows.

===============================  ==================================================================================
state                            meaning
===============================  ==================================================================================
``hung 40 s in orders 2:7731``   a handler has run longer than it should: topic, queue id, queue offset
``behind retention: 12 lost``    so many messages were removed before the group had finished them
``no members``                   there are messages, or failed ones that wait, and no process consumes the group
``no owner``                     the group has members, and none of them has this queue just now
``a file cannot be read``        a damaged or missing file of the store stands in the way
``a retry cannot be stored``     a failed message stays where it is, and is tried again in place
``flow control: span``           the consumer takes nothing: ``messages``, ``bytes`` or ``span`` is at its limit
``suspended: a message failed``  an ordered queue waits for the next attempt
``paused``                       by ``rmq group pause``
``retrying``                     no new message; failed ones are tried again in place
``running``                      messages are delivered
``waiting: 20 for a retry``      no new message; so many failed ones wait for their next attempt
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

HUNG_AFTER_S = 300.0
"""Seconds after which a handler call counts as hung, unless a person says otherwise."""

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
    "waiting",
    "idle",
)


def queue_state(
    has_lag: bool, lost: int, paused: bool, has_owner: bool, flow_control: int = 0, held_attempts: int = 0
) -> str:
    """Return the state of one queue of a group; ``lost`` messages were removed before the group had finished them."""
    if lost:
        return f"behind retention: {lost:,} lost"
    if paused:
        return "paused"
    if not has_owner:
        return "no owner" if has_lag else "idle"
    words = FLOW_CONTROLS[flow_control] if flow_control < len(FLOW_CONTROLS) else "none"
    if words in ("none", "paused"):
        words = "retrying" if held_attempts else ("running" if has_lag else "idle")
    return words


def group_state(queue_states: Iterable[str], *, members: int, lag: int, waiting: int = 0) -> str:
    """Return the state of a group from those of its queues; ``waiting`` failed messages wait for their retry."""
    worst = min(queue_states, key=severity, default="idle")
    if not members and (lag or waiting) and severity(worst) > severity("no members"):
        return "paused, no members" if worst == "paused" else "no members"
    return f"waiting: {waiting:,} for a retry" if waiting and worst == "idle" else worst


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


def kind(state: str) -> str:
    """Return the words that a state begins with in the table, such as ``flow control``; itself if it is not there."""
    return next((begin for begin in _WORST_FIRST if state.startswith(begin)), state)


def severity(state: str) -> int:
    """Return where a state stands in the table; the worst is 0, an unknown one is as harmless as running."""
    begin = kind(state)
    return _WORST_FIRST.index(begin if begin in _WORST_FIRST else "running")
