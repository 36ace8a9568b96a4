"""The overview: how the store is, in words and in numbers; what needs attention; the groups at a glance."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from rmqclient.dashboard.desk.desk import Desk, desk_of
from rmqclient.dashboard.desk.forms import asked_range
from rmqclient.dashboard.looking.needs import Headline, Standing, headline, needs_of, standings
from rmqclient.dashboard.looking.past import RANGES, WORDS, words_of
from rmqclient.store.observe.observation import Observation

_GROUPS_SHOWN = 12
_NEEDS_SHOWN = 6
_MARKS_SHOWN = 4


def show(request: Request) -> Response:
    """Answer the first page; ``?range=`` says of which time charts and groups tell."""
    desk, name = desk_of(request), asked_range(request)
    desk.live.begin()
    past = desk.past.of(name)
    with desk.reading() as reading:
        seen = reading.observe()
        groups = standings(seen, past.figures(), dead_letters_of(desk), RANGES[name])
        needs = needs_of(reading, seen, groups, desk.around.now())
    marks = desk.past.marks(past.since_ms)
    busy = [each for each in groups if not each.is_idle]
    shown = busy[:_GROUPS_SHOWN]
    return desk.page(
        request,
        "overview.html",
        range=name,
        words=WORDS,
        said=_headline(desk, seen, groups),
        needs=needs[:_NEEDS_SHOWN],
        more_needs=needs[_NEEDS_SHOWN:],
        groups=[(each, past.lags(each.name)) for each in shown],
        more_groups=len(busy) - len(shown),
        idle_groups=len(groups) - len(busy),
        marks=[(each, words_of(each)) for each in reversed(marks[-_MARKS_SHOWN:])],
        workers=seen.workers,
        disk_used=seen.disk.used_ratio,
        stored_bytes=seen.disk.published_to - seen.disk.min_offset,
        has_housekeeper=seen.has_housekeeper,
    )


def dead_letters_of(desk: Desk) -> dict[str, int]:
    """Return how many dead letters of each group wait, as the last sample says; before the first, nothing."""
    latest = desk.live.latest()
    return latest.dead_letters_of if latest else {}


def _headline(desk: Desk, seen: Observation, groups: list[Standing]) -> Headline:
    """Return how the store is; for a group that is paused, whoever did it and how fast it was are looked up."""
    if not any(each.group.state.startswith("paused") for each in groups):
        return headline(seen, groups, (), {})
    return headline(seen, groups, desk.past.marks(0), desk.past.of("1h").paces())
