"""Advice: the checks of ``rmq doctor`` on the clock, and on an application and its store."""

# ruff: noqa: PLC0415 - imports inside functions: help is quick

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rmqclient import App
    from rmqclient.handler import Handler
    from rmqclient.store.observe.observation import Queue
    from rmqclient.store.observe.reading import Reading

_AHEAD_MS = 1_000
"""Milliseconds. A store time further in the future than this shows that the clock went back."""
_LEVELS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
"""Delay of each level, from level 1 on: 1s 5s 10s 30s 1m 2m ... 2h."""


class Line(NamedTuple):
    """The result of one check: a line of ``rmq doctor``."""

    level: str
    """``ok``, ``warn`` or ``bad``."""
    subject: str
    """What was checked, such as ``clock`` or ``handler billing``."""
    found: str
    remedy: str = ""
    """What to do about it; empty if nothing is wrong."""


def clock(reading: Reading, queues: list[Queue], *, now_ms: int | None = None) -> Line:
    """Compare the wall clock with the newest message: delays and schedules wait for a clock that went back."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    stored = (
        reading.records.stored_ms(each.queue, each.max_offset - 1)
        for each in queues
        if each.max_offset > each.min_offset
    )
    newest = max((each for each in stored if each is not None), default=now_ms)
    if newest - now_ms <= _AHEAD_MS:
        return Line("ok", "clock", "not behind the newest message")
    found = f"{(newest - now_ms) / 1000:,.0f} s behind the newest message"
    return Line("warn", "clock", found, "set it: what waits for a time comes late, and retention keeps files longer")


def application(app: App, queues: list[Queue]) -> Iterator[Line]:
    """Compare the handlers of an application with the topics of its store."""
    sent: dict[str, int] = {}
    for each in queues:
        sent[each.queue.topic] = sent.get(each.queue.topic, 0) + each.max_offset
    for handler in app.handlers:
        subject = f"handler {handler.group}"
        if handler.topic not in sent:
            close = difflib.get_close_matches(handler.topic, sent, n=1)
            remedy = f"did you mean {close[0]}?" if close else "its first message makes it"
            yield Line("warn", subject, f"there is no topic {handler.topic}", remedy)
        elif not sent[handler.topic]:
            yield Line(
                "warn", subject, f"nobody has sent to {handler.topic}", "see `rmq topic ls` for where messages go"
            )
        else:
            yield Line("ok", subject, f"{handler.topic} has had {sent[handler.topic]:,} messages")
    yield from _retention(app)


def _retention(app: App) -> Iterator[Line]:
    """Compare the time for which messages are kept with the longest one that a failed message waits."""
    from rmqclient import StoreConfig

    hours = (app.config or StoreConfig()).retention.file_reserved_hours
    waits = {_longest_wait_s(handler): handler for handler in app.handlers if not handler.broadcast}
    if not waits:
        return
    longest = max(waits)
    if longest < hours * 3_600:
        yield Line("ok", "retention", f"{hours} h, longer than any message waits for its next attempt")
        return
    found = f"{hours} h, and a failed message of {waits[longest].group} waits up to {longest / 3_600:.3g} h"
    yield Line("bad", "retention", found, "raise file_reserved_hours, or it is removed before its next attempt")


def _longest_wait_s(handler: Handler) -> float:
    """Return the longest wait by a delay level; a wait of another length is carried on when its file goes."""
    policy = handler.retry
    attempts = min(policy.max_retries, len(_LEVELS_S) + len(policy.delay_levels))
    levels = [policy.delay_level(attempt) for attempt in range(1, attempts + 1)] if not handler.order else []
    return max((float(_LEVELS_S[level - 1]) for level in levels if level), default=0.0)
