"""The overview: six numbers with their last ten minutes, what needs somebody, groups and workers at a glance."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.dashboard.looking.groups import group_lines
from rmqclient.dashboard.looking.needs import needs_of

_GROUPS_SHOWN = 8


def show(request: Request) -> Response:
    """Answer the first page."""
    desk = desk_of(request)
    desk.live.begin()
    backend, now_ms = desk.backend(), time.time_ns() // 1_000_000
    with desk.glance() as glance:
        lines = group_lines(glance, backend.consumers(), now_ms)
        return desk.page(
            request,
            "overview.html",
            needs=needs_of(glance),
            groups=lines[:_GROUPS_SHOWN],
            more_groups=len(lines) - _GROUPS_SHOWN,
            workers=glance.workers(),
            disk_used=glance.disk_used_ratio(),
            stored_bytes=glance.word("published_to") - glance.word("min_offset"),
            has_housekeeper=glance.has_housekeeper,
        )
