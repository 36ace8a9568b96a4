"""Workers: the processes of ``rmq run``, what each handles now, since when, and what its threads run."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rmqclient.admin.stacks import stack_of
from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.dashboard.desk.forms import asked
from rmqclient.dashboard.looking.bodies import visible
from rmqclient.health.limits import Limits
from rmqclient.store.observe.observation import Call
from rmqclient.store.observe.summary import state_of_worker
from rmqclient.store.threads.standing import has_open

_STACKS_WITHIN_S = 5.0


def show_all(request: Request) -> Response:
    """Answer the page of all workers, by supervisor."""
    desk = desk_of(request)
    desk.live.begin()
    with desk.reading() as reading:
        workers, calls = reading.workers(), reading.calls()
    known = {worker.pid for worker in workers}
    hung_after_s = Limits().message_age_s
    return desk.page(
        request,
        "workers/all.html",
        supervisors=sorted({worker.supervisor_pid for worker in workers}),
        workers=[
            (each, state_of_worker(each, calls, hung_after_s), _of(each.pid, calls), each.resident_bytes)
            for each in workers
        ],
        others=[each for each in calls if each.pid not in known],
    )


def show_one(request: Request) -> Response:
    """Answer the page of one worker; with ``?stacks=1``, with what its threads run, for which it gets a signal."""
    desk = desk_of(request)
    desk.live.begin()
    pid = request.path_params["pid"]
    with desk.reading() as reading:
        worker = next((each for each in reading.workers() if each.pid == pid), None)
        calls = _of(pid, reading.calls())
    if worker is None:
        raise HTTPException(404, f"{pid} is not a worker of this store, or it has ended.")
    stacks, wrong = _stacks(pid, str(desk.store().root)) if asked(request, "stacks") else ("", "")
    return desk.page(
        request,
        "workers/one.html",
        worker=worker,
        state=state_of_worker(worker, calls, Limits().message_age_s),
        running=calls,
        resident=worker.resident_bytes,
        stacks=stacks,
        wrong=wrong,
    )


def _stacks(pid: int, root: str) -> tuple[str, str]:
    """Return what the threads of a worker run; without that, why it does not tell."""
    if not has_open(pid, f"{root}/lock"):
        return "", f"Worker {pid} is only starting, or runs in another container: ask it there, by rmq worker stack."
    try:
        return visible(stack_of(pid, _STACKS_WITHIN_S)), ""
    except OSError as error:
        return "", f"Worker {pid} tells no stack: {error}"


def _of(pid: int, calls: list[Call]) -> list[Call]:
    return [each for each in calls if each.pid == pid]


ROUTES = [Route("/workers", show_all), Route("/workers/{pid:int}", show_one)]
