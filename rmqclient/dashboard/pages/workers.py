"""Workers: the processes of ``rmq run``, what each handles now, and since when."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.health.words import worker_state
from rmqclient.local.glance import Running
from rmqclient.store import WorkerStatus

_HUNG_AFTER_S = 60.0


def show(request: Request) -> Response:
    """Answer the page of all workers, by supervisor."""
    desk = desk_of(request)
    desk.live.begin()
    with desk.glance() as glance:
        running = glance.running()
    workers = desk.store().workers().all()
    by_pid: dict[int, list[Running]] = {}
    for each in running:
        by_pid.setdefault(each.pid, []).append(each)
    known = {worker.pid for worker in workers}
    return desk.page(
        request,
        "workers/all.html",
        supervisors=sorted({worker.supervisor_pid for worker in workers}),
        workers=[(each, _state(each, by_pid), by_pid.get(each.pid, []), each.resident_bytes) for each in workers],
        others=[each for each in running if each.pid not in known],
    )


def _state(worker: WorkerStatus, running: dict[int, list[Running]]) -> str:
    first = running.get(worker.pid, [None])[0]
    place = f"{first.topic} {first.queue_id}:{first.queue_offset}" if first else None
    age_s = None if worker.message_age_ms is None else worker.message_age_ms / 1000
    return worker_state(worker.state.name.lower(), message_age_s=age_s, hung_after_s=_HUNG_AFTER_S, place=place)


ROUTES = [Route("/workers", show)]
