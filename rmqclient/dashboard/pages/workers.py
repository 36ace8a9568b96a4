"""Workers: the processes of ``rmq run``, what each runs now, since when, and where in the code one stands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rmqclient.admin.stacks import stack_of
from rmqclient.admin.threads import Thread, began_s, source_of, standing, threads_in
from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.dashboard.desk.forms import asked
from rmqclient.dashboard.looking.bodies import visible
from rmqclient.health.limits import Limits
from rmqclient.store import WorkerStatus, clock
from rmqclient.store.marks import Mark, marks_of
from rmqclient.store.observe.observation import Call
from rmqclient.store.observe.states import severity
from rmqclient.store.observe.summary import state_of_worker
from rmqclient.store.threads.standing import has_open

LANE_S = 600
"""Seconds that a lane shows."""
_LANES_SHOWN = 4
_MARKS_SHOWN = 8
_STACKS_WITHIN_S = 5.0


class Line(NamedTuple):
    """One worker, as the list shows it."""

    worker: WorkerStatus
    state: str
    calls: list[Call]
    """What it runs now, the longest first."""
    ticks: list[int]
    """Seconds on its lane, of the last ten minutes, at which its supervisor left a mark about it."""

    @property
    def is_hung(self) -> bool:
        """Whether a call of it has run for too long."""
        return self.state.startswith("hung")


class Run(NamedTuple):
    """Calls of a stack that stand one after the other, all the application's or none."""

    is_own: bool
    frames: list[tuple[str, str, str]]
    """Of each the place, the function, and the text of its line if that can be shown."""


def show_all(request: Request) -> Response:
    """Answer the page of all workers: those that hang first, the one that has hung longest before the others."""
    desk = desk_of(request)
    desk.live.begin()
    with desk.reading() as reading:
        workers, calls = reading.workers(), reading.calls()
    known = {worker.pid for worker in workers}
    marks = _marks(request, since_ms=clock.wall_ms() - LANE_S * 1000)
    hung_after_s = Limits().message_age_s
    lines = [_line(each, calls, marks, hung_after_s) for each in workers]
    lines.sort(key=lambda each: (severity(each.state), -_longest_s(each.calls) if each.is_hung else 0.0))
    return desk.page(
        request,
        "workers/all.html",
        lines=lines,
        lead=_lead(lines),
        supervisors=len({worker.supervisor_pid for worker in workers}),
        others=[each for each in calls if each.pid not in known],
        hung_after_s=hung_after_s,
        lanes_shown=_LANES_SHOWN,
        lane_s=LANE_S,
    )


def show_one(request: Request) -> Response:
    """Answer the page of one worker; with ``?stacks=1``, with where it stands, for which it gets a signal."""
    desk = desk_of(request)
    desk.live.begin()
    pid = request.path_params["pid"]
    with desk.reading() as reading:
        worker = next((each for each in reading.workers() if each.pid == pid), None)
        calls = [each for each in reading.calls() if each.pid == pid]
    if worker is None:
        raise HTTPException(404, f"{pid} is not a worker of this store, or it has ended.")
    name, hung_after_s = worker.name or f"worker {pid}", Limits().message_age_s
    marks = [each for each in _marks(request, since_ms=0) if worker.name and each.subject == worker.name]
    return desk.page(
        request,
        "workers/one.html",
        line=_line(worker, calls, marks, hung_after_s),
        name=name,
        marks=marks[: -_MARKS_SHOWN - 1 : -1],
        hung_after_s=hung_after_s,
        lane_s=LANE_S,
        **(_stand(name, pid, calls, str(desk.store().root)) if asked(request, "stacks") else _NOT_ASKED),
    )


_NOT_ASKED: dict[str, Any] = {"sentence": "", "calling": [], "busy": [], "others": [], "wrong": ""}


def _stand(name: str, pid: int, calls: list[Call], root: str) -> dict[str, Any]:
    """Return where a worker stands; without that, why it does not tell."""
    if not has_open(pid, f"{root}/lock"):
        wrong = f"Worker {pid} is only starting, or runs in another container: ask it there, by rmq worker stack."
        return {**_NOT_ASKED, "wrong": wrong}
    try:
        threads, began = threads_in(stack_of(pid, _STACKS_WITHIN_S)), began_s(pid)
    except OSError as error:
        return {**_NOT_ASKED, "wrong": f"Worker {pid} tells no stack: {error}"}
    told = [(each, _runs(each, began)) for each in threads]
    return {
        "sentence": visible(standing(name, threads, calls)),
        "calling": [each for each in told if each[0].has_call],
        "busy": [each for each in told if not each[0].has_call and each[0].stands_in],
        "others": [each for each in told if not each[0].has_call and not each[0].stands_in],
        "wrong": "",
    }


def _runs(thread: Thread, began: float) -> list[Run]:
    return [
        Run(
            is_own,
            [
                (visible(f"{each.path}:{each.line}"), visible(each.function), visible(source_of(each, began)))
                for each in frames
            ],
        )
        for is_own, frames in groupby(thread.frames, key=lambda frame: frame.is_own)
    ]


def _line(worker: WorkerStatus, calls: Sequence[Call], marks: Sequence[Mark], hung_after_s: float) -> Line:
    now_ms = clock.wall_ms()
    ages = [(now_ms - each.at_ms) // 1000 for each in marks if worker.name and each.subject == worker.name]
    return Line(
        worker,
        state_of_worker(worker, calls, hung_after_s),
        [each for each in calls if each.pid == worker.pid],
        [LANE_S - age for age in ages if 0 <= age <= LANE_S],
    )


def _lead(lines: Sequence[Line]) -> str:
    """Return in a sentence what the workers do."""
    running = [each for each in lines if each.calls]
    messages = sum(len(each.calls) for each in running)
    said = f"{len(lines)} {'worker' if len(lines) == 1 else 'workers'}, "
    if not running:
        return said + "and no handler runs."
    return (
        said
        + f"{len(running)} of which {'runs' if len(running) == 1 else 'run'} {messages:,} "
        + ("message." if messages == 1 else "messages.")
    )


def _longest_s(calls: Sequence[Call]) -> float:
    return max((each.age_s for each in calls), default=0.0)


def _marks(request: Request, since_ms: int) -> list[Mark]:
    return marks_of(desk_of(request).store().root, since_ms, ("worker",))


ROUTES = [Route("/workers", show_all), Route("/workers/{pid:int}", show_one)]
