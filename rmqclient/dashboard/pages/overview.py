"""The overview: six numbers with their last ten minutes, what needs somebody, groups and workers at a glance."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.dashboard.looking.needs import needs_of
from rmqclient.store.observe.summary import groups_of

_GROUPS_SHOWN = 8


def show(request: Request) -> Response:
    """Answer the first page."""
    desk = desk_of(request)
    desk.live.begin()
    with desk.reading() as reading:
        seen = reading.observe()
        needs = needs_of(reading, seen)
    groups = sorted(groups_of(seen), key=lambda each: -each.lag)
    return desk.page(
        request,
        "overview.html",
        needs=needs,
        groups=groups[:_GROUPS_SHOWN],
        more_groups=len(groups) - _GROUPS_SHOWN,
        now_ms=seen.wall_ms,
        workers=seen.workers,
        disk_used=seen.disk.used_ratio,
        stored_bytes=seen.disk.published_to - seen.disk.min_offset,
        has_housekeeper=seen.has_housekeeper,
    )
