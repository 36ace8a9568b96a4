"""Awake: the time in which this process has run, by which it judges the others of its store.

A lease and a heartbeat are times since the boot of the host. When a whole host stands still and goes on, a suspended
laptop, a paused machine or container, the first process that goes on finds every lease over and every heart silent,
although the others stood still as it did. So nobody is blamed for time in which the judge itself has not run.

Who judges looks at the clock, and a thread of the process looks at least twice a second. A look that comes late shows
that the process stood still since the one before. One that only did not get the processor, or the interpreter's lock,
counts as standing, too: it could not have seen a renewal either.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqclient.store.clock import boottime

LOOKS_EVERY_MS = 500
"""How far apart the looks are at most while the process runs."""
_LOOKS_EVERY_NS = LOOKS_EVERY_MS * 1_000_000
_STOOD_NS = 2 * _LOOKS_EVERY_NS
"""A look that comes so long after the one before shows that the process stood still, from the time of a look on."""
_KEPT = 64


class Pauses:
    """Times in which a process stood still, the last ones. Any thread may read them, and add the same one twice."""

    def __init__(self) -> None:
        self._ended: dict[int, int] = {}  # by the begin; it is replaced and never changed

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._ended.items())

    def add(self, began: int, ended: int) -> None:
        """Note a pause; one that begins where the last one ended is the same."""
        known = list(self)
        if known and known[-1][1] == began:
            began = known.pop()[0]
        if len(known) > _KEPT:  # the oldest ones become one, as long as both, so that the sum stays
            (begin, end), (first, last), *known = known
            known = [(first - (end - begin), last), *known]
        self._ended = {**dict(known), began: ended}

    def ns_since(self, moment: int) -> int:
        """Return for how many ns the process has stood still since a moment."""
        return sum(ended - max(began, moment) for began, ended in self if ended > moment)


class Awake:
    """When this process ran, in ns of CLOCK_BOOTTIME. For any thread; until :meth:`begin` it has run all the time."""

    def __init__(self) -> None:
        self._looked: int | None = None
        self._pauses = Pauses()

    def begin(self, now: int | None = None) -> None:
        """Take it from here on that somebody looks twice a second."""
        self._looked = boottime() if now is None else now

    def look(self, now: int | None = None) -> int:
        """Note it if the process has just stood still, and return the present."""
        # Before the look of another thread: a pause between the two makes this present old, and its judgement mild.
        now = boottime() if now is None else now
        looked = self._looked
        if looked is not None and now > looked:
            if now - looked > _STOOD_NS:
                self._pauses.add(looked + _LOOKS_EVERY_NS, now)
            self._looked = now
        return now

    def ran_s(self) -> float:
        """Return a time in seconds that passes only while this process runs. Compare it with others of this process."""
        return self.ran_since(0) / 1e9

    def ran_since(self, moment: int, now: int | None = None) -> int:
        """Return for how many ns this process has run since a moment; negative for one that is to come."""
        return self.look(now) - moment - self._pauses.ns_since(moment)

    def is_over(self, lease_until: int, lease_ns: int) -> bool:
        """Tell whether this process has run through a lease of this length without seeing it renewed."""
        return self.ran_since(lease_until - lease_ns) > lease_ns
