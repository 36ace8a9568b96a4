"""What needs attention: the findings of ``rmq check`` that are not well, by impact, each with the way to put it right.

The impact of a group is how many seconds it is behind times how many messages a second come for it; so what delays most
messages stands first. What endangers the whole store stands before every group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqclient.dashboard.looking.words import about, age, count
from rmqclient.health import findings
from rmqclient.health.findings import Finding
from rmqclient.health.limits import Limits
from rmqclient.health.words import retries
from rmqclient.metrics import Figures, Mark
from rmqclient.store.history.rings import Row
from rmqclient.store.observe.observation import Observation
from rmqclient.store.observe.reading import Reading
from rmqclient.store.observe.summary import Group, groups_of
from rmqclient.store.threads.standing import Onlooked

BEHIND_S = 60.0
"""A group whose oldest message is older than this is behind, whatever it does."""
_CATCHES_UP = 1.5
"""So many times what comes in has a group handled that had a lag to catch up."""
_STANDS = ("hung", "behind retention", "no members", "no owner", "a file", "a retry", "flow", "suspended", "paused")
_WAYS: dict[str, tuple[str, str, dict[str, str]]] = {
    "workers": ("See the workers", "workers", {}),
    "hung": ("See the workers", "workers", {}),
    "timer": ("See what waits", "schedules", {}),
    "schedules": ("See the schedules", "schedules", {"tab": "crons"}),
    "tx": ("Decide", "transactions", {}),
}
"""By the check: what its button says, and the page that it opens."""


class Standing(NamedTuple):
    """One group as it stands now and as it did in a range of time."""

    group: Group
    figures: Figures
    dead_letters: int
    oldest_s: float

    @property
    def name(self) -> str:
        """The name of the group."""
        return self.group.group

    @property
    def stands(self) -> bool:
        """Whether something keeps it from going on."""
        return self.group.state.startswith(_STANDS)

    @property
    def is_behind(self) -> bool:
        """Whether messages wait that should not."""
        waits = self.group.lag > 0 or bool(self.group.waiting)
        return (waits and self.stands) or self.group.state.startswith("hung") or self.oldest_s > BEHIND_S

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to see: nothing waits, nothing came, nothing was given up."""
        return self.figures.row.is_idle and not self.group.lag and self.group.state == "idle" and not self.dead_letters

    @property
    def drained_in_s(self) -> float | None:
        """Seconds until nothing waits, at the rates of the range; None if it never ends so, or stands."""
        if not self.group.lag:
            return 0.0
        rate = self.figures.finished_per_s - self.figures.published_per_s
        return self.group.lag / rate if rate > 0 and not self.stands else None

    @property
    def drains(self) -> str:
        """When nothing waits any more, in words."""
        seconds = self.drained_in_s
        if seconds is None:
            return "never"
        return "now" if not seconds else f"in {about(seconds)}"

    @property
    def impact(self) -> float:
        """Seconds behind times messages a second; 0 if nothing waits."""
        return self.oldest_s * max(self.figures.published_per_s, 1 / 60)


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that somebody should look at."""

    level: str
    """``bad`` or ``warn``."""
    title: str
    text: str
    verb: str
    """What its button says."""
    path: tuple[str, ...]
    """Parts of the path of the page that the button opens."""
    query: dict[str, str] = field(default_factory=dict)
    resumes: str = ""
    """A group that the button lets go on, after a question."""
    waits: int = 0
    """Messages that it would take."""
    impact: float = 0.0


def standings(
    seen: Observation, figures: Mapping[str, Figures], dead_letters: Mapping[str, int], seconds: float
) -> list[Standing]:
    """Return every group, those with the most impact first, then by lag and name."""
    found = [
        Standing(
            each,
            figures.get(each.group, Figures(each.group, seconds, Row(), each.lag)),
            dead_letters.get(each.group, 0),
            each.oldest_s(seen.wall_ms) or 0.0,
        )
        for each in groups_of(seen)
    ]
    return sorted(found, key=lambda each: (-each.is_behind, -each.impact, -each.group.lag, each.name))


def needs_of(reading: Reading, seen: Observation, groups: Sequence[Standing], around: Onlooked) -> list[Need]:
    """Return what needs attention, the most urgent first; ``around`` are the processes that have the store open.

    How many workers there should be, only `rmq check` is told.
    """
    by_name = {each.name: each for each in groups}
    hung = any(each.group.state.startswith("hung") for each in groups)
    found = findings.look_at(reading, seen, Limits(min_ready=0), around)
    needs = [
        _need(each, by_name) for each in found if each.level != findings.OK and not (hung and each.check == "hung")
    ]
    for each in groups:
        if each.is_behind and not each.stands:
            text = (
                f"{count(each.group.lag)} wait, the oldest for {age(each.oldest_s)}. Drained {each.drains}, as it goes."
            )
            needs.append(
                Need("warn", f"{each.name} is behind", text, "See why", ("groups", each.name), impact=each.impact)
            )
    return sorted(needs, key=lambda need: -need.impact)


def _need(finding: Finding, groups: Mapping[str, Standing]) -> Need:
    level = "bad" if finding.level == findings.CRITICAL else "warn"
    standing = groups.get(finding.subject)
    if finding.check == "lag" and standing is not None:
        return _need_of_group(level, standing)
    if finding.check == "dlq":
        number = standing.dead_letters if standing else 0
        query = {"group": finding.subject}
        return Need(
            level, finding.subject, finding.state, "Look at them", ("dead-letters",), query, impact=number / 1000
        )
    verb, page, query = _WAYS.get(finding.check, ("", "", {}))
    title = finding.check.capitalize() if finding.check != "tx" else "Transactions"
    state = finding.state[:1].upper() + finding.state[1:]
    text = state if page else f"{state}. {finding.remedy[:1].upper()}{finding.remedy[1:]}."
    path = (page,) if page else ()
    return Need(level, title, text, verb, path, query, impact=float("inf") if level == "bad" else 0.0)


def _need_of_group(level: str, each: Standing) -> Need:
    group, state = each.group, each.group.state
    waits = (
        [f"{count(group.lag)} wait" + (f", the oldest for {age(each.oldest_s)}" if each.oldest_s else "")]
        if group.lag
        else []
    )
    waits += [f"{count(group.waiting)} wait for a retry"] if group.waiting else []
    path: tuple[str, ...] = ("groups", each.name)
    verb, resumes = "See its queues", ""
    if state.startswith("hung") and group.calls:
        verb, path = "See where it hangs", ("workers", str(group.calls[0].pid))
    elif state.startswith("paused"):
        verb, resumes = "Resume", each.name
    text = ". ".join([state[:1].upper() + state[1:], *waits])
    return Need(level, each.name, f"{text}.", verb, path, resumes=resumes, waits=group.lag, impact=each.impact)


class Headline(NamedTuple):
    """How the store is, in words."""

    title: str
    sentences: list[str]


def headline(
    seen: Observation, groups: Sequence[Standing], marks: Sequence[Mark], paces: Mapping[str, float]
) -> Headline:
    """Return what is wrong, and the reasons of the groups that matter most.

    ``paces`` says how many messages a second a group has handled at its best, of late.
    """
    if not groups:
        return Headline("No group has consumed yet", [])
    behind = [each for each in groups if each.is_behind]
    letters = sum(each.dead_letters for each in groups)
    gone = (
        [f"{count(letters)} dead {'letter waits' if letters == 1 else 'letters wait'} for a decision."]
        if letters
        else []
    )
    if waiting := retries({each.name: each.group.waiting or 0 for each in groups}):
        gone.append(f"Failed messages: {waiting}.")
    whole = "The group keeps" if len(groups) == 1 else f"All {len(groups)} groups keep"
    if not behind:
        return Headline(f"{whole} up", gone)
    workers = {each.pid: each.name for each in seen.workers}
    title = f"Behind in {len(behind)} of {len(groups)} {'group' if len(groups) == 1 else 'groups'}"
    return Headline(title, [*(_sentence(each, workers, marks, paces, seen.wall_ms) for each in behind[:3]), *gone])


def _sentence(
    each: Standing, workers: Mapping[int, str], marks: Sequence[Mark], paces: Mapping[str, float], now_ms: int
) -> str:
    state = each.group.state
    if state.startswith("hung") and each.group.calls:
        call = each.group.calls[0]
        return f"{each.name} is hung in {workers.get(call.pid) or f'process {call.pid}'} ({about(call.age_s)})."
    if state.startswith("paused"):
        mark = next((mark for mark in reversed(marks) if mark.kind == "pause" and mark.subject == each.name), None)
        by = f" by {mark.author}" if mark and mark.author else ""
        since = f" for {about((now_ms - mark.at_ms) / 1000)}" if mark else ""
        said = f"{each.name} is paused{by}{since}; {count(each.group.lag)} wait"
        pace, published = paces.get(each.name, 0.0), each.figures.published_per_s
        if pace < _CATCHES_UP * published or not pace:  # it never had to show how fast it is
            return f"{said}."
        return f"{said}; resumed, it would drain in {about(each.group.lag / (pace - published))} at its best pace."
    if state.startswith("no members"):
        return f"{each.name} has no members; {count(each.group.lag + (each.group.waiting or 0))} wait."
    if each.stands:
        return f"{each.name}: {state}."
    figures = each.figures
    if each.drained_in_s is None:
        rates = f"{count(figures.published_per_s)} come in a second and {count(figures.finished_per_s)} leave"
        return f"{each.name} is {about(each.oldest_s)} behind and falls further: {rates}."
    return f"{each.name} is {about(each.oldest_s)} behind and drained {each.drains}."
