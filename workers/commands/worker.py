"""``rmq worker``: the worker processes of a store, or those of this host for a cluster: list, restart, scale, look."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqclient.store.runtime.rows import WorkerState
from rmqclient.workers.console import status
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import with_rows, with_store
from rmqclient.workers.console.tree import Noun
from rmqclient.workers.console.watching import with_watch

if TYPE_CHECKING:
    from rmqclient.store.observe.observation import Call
    from rmqclient.store.observe.reading import Reading
    from rmqclient.store.runtime.rows import WorkerStatus

_READY = (WorkerState.READY, WorkerState.OVERDUE)
_WAIT_S = 15.0
_LOOK_EVERY_S = 0.05


@click.group(cls=Noun)
def worker() -> None:
    """List worker processes, restart and scale them, and see what they run."""


@worker.command("ls")
@with_store
@with_rows
@with_watch
def worker_ls(root: Path | str, out: Output) -> None:
    """List the workers of all supervisors: state, age of the last beat and of the oldest message in flight."""
    from rmqclient.admin.workers import workers_of_cluster

    if isinstance(root, str):
        rows = [status.worker_row(row) for row in workers_of_cluster(root).all()]
    else:
        with _reading(root) as reading:
            calls = reading.calls()
            rows = [_ls_row(each, calls) for each in reading.workers()]
    out.write(rows, nothing="no workers: `rmq run MODULE:APP` starts them")


@worker.command("restart")
@click.argument("pids", metavar="PID...", type=int, nargs=-1)
@click.option("--all", "everyone", is_flag=True, help="Every worker, one after the other.")
@with_store
def worker_restart(pids: tuple[int, ...], everyone: bool, root: Path) -> None:
    """Let the worker PID finish its messages in flight and end; its supervisor starts a replacement.

    With --all, each worker ends only after the replacement of the one before it is ready.
    """
    if bool(pids) is everyone:
        raise click.UsageError("give the PID of each worker, from `rmq worker ls`, or --all")
    for pid in pids or [each.pid for each in _workers(root)]:
        ready = sum(each.state in _READY for each in _workers(root))
        _tell(pid, signal.SIGTERM, lambda pid=pid: bool(_one(root, pid)))  # type: ignore[misc]
        _until(lambda pid=pid: all(each.pid != pid for each in _workers(root)), f"worker {pid} still finishes")  # type: ignore[misc]
        _until(
            lambda ready=ready: sum(each.state in _READY for each in _workers(root)) >= ready,  # type: ignore[misc]
            f"worker {pid} ended and is not replaced yet",
        )
        click.echo(f"worker {pid}: replaced", err=True)


@worker.command("scale")
@click.argument("count", type=click.IntRange(min=1))
@click.option("--supervisor", type=int, help="Pid of the `rmq run` to change, if the store has several.")
@with_store
def worker_scale(count: int, supervisor: int | None, root: Path) -> None:
    """Set the number of workers of `rmq run` to COUNT, until it ends. Removed workers first finish their messages."""
    supervisors = sorted({each.supervisor_pid for each in _workers(root)})
    if supervisor is None:
        if len(supervisors) != 1:
            raise click.ClickException(
                f"supervisors of this store here: {supervisors or 'none'}; say which --supervisor"
            )
        supervisor = supervisors[0]
    if supervisor not in supervisors:
        raise click.ClickException(f"{supervisor} supervises no worker of this store; these do: {supervisors}")

    def present() -> int:
        return sum(
            each.supervisor_pid == supervisor and each.state is not WorkerState.DRAINING for each in _workers(root)
        )

    while (now := present()) != count:
        wanted = now + (1 if now < count else -1)
        _tell(
            supervisor,
            signal.SIGTTIN if now < count else signal.SIGTTOU,
            lambda: supervisor in {each.supervisor_pid for each in _workers(root)},
        )
        _until(lambda wanted=wanted: present() == wanted, f"the supervisor still has {now} workers")  # type: ignore[misc]
    click.echo(f"supervisor {supervisor}: {count} workers", err=True)


@worker.command("stack")
@click.argument("pid", type=int)
@click.option("--all", "everything", is_flag=True, help="Every thread, with every frame.")
@with_store
def worker_stack(pid: int, everything: bool, root: Path) -> None:
    """Print where the worker PID stands: in a sentence, then the stacks of its handlers. The worker continues.

    The application's own frames are marked and have their source line; those of libraries are counted.
    """
    from rmqclient.admin.stacks import stack_of

    name = _one(root, pid).name or f"worker {pid}"
    with _reading(root) as reading:
        calls = [each for each in reading.calls() if each.pid == pid]
    try:
        stacks = stack_of(pid, _WAIT_S)
    except OSError as error:
        raise click.ClickException(f"worker {pid} tells no stack: {error}") from error
    click.echo(stacks if everything else "\n".join(_standing(name, pid, stacks, calls)), nl=not everything)


def _standing(name: str, pid: int, stacks: str, calls: list[Call]) -> Iterator[str]:
    from rmqclient.admin.threads import began_s, source_of, standing, threads_in

    threads = threads_in(stacks)
    shown = [each for each in threads if each.has_call]
    began = began_s(pid)
    yield standing(name, threads, calls)
    for thread in shown:
        yield f"\nThread {thread.ident}, which calls a handler (most recent call first):"
        for is_own, frames in groupby(thread.frames, key=lambda frame: frame.is_own):
            run = list(frames)
            if not is_own:
                yield f"  {len(run)} of libraries, the first {run[0].path}:{run[0].line} in {run[0].function}"
                continue
            for frame in run:
                yield f"> {frame.path}:{frame.line} in {frame.function}"
                if source := source_of(frame, began):
                    yield f"    {source}"
    if len(threads) > len(shown):
        yield f"\n{len(threads) - len(shown)} others: rmq worker stack {pid} --all"


def _workers(root: Path) -> list[WorkerStatus]:
    """Return the workers of a store whose process ids mean the same here."""
    return [each for each in _everywhere(root) if each.is_here]


def _everywhere(root: Path | str) -> list[WorkerStatus]:
    """Return all workers of a store."""
    with _reading(root) as reading:
        return reading.workers()


@contextmanager
def _reading(root: Path | str) -> Iterator[Reading]:
    from rmqclient.errors import NotOnCluster
    from rmqclient.store.observe.reading import Reading
    from rmqclient.store.observe.shared_file import Unreadable
    from rmqclient.workers.console.opening import StoreCannotBeOpened

    if isinstance(root, str):
        raise NotOnCluster("workers of a cluster: see `rmq worker ls`, and send signals to `rmq run` by hand")
    try:
        with Reading(str(root)) as reading:
            yield reading
    except Unreadable as error:
        raise StoreCannotBeOpened(str(error)) from error


def _ls_row(each: WorkerStatus, calls: list[Call]) -> status.Row:
    """One worker of a list; its state says what hangs."""
    from rmqclient.store.observe.summary import state_of_worker

    state, row = state_of_worker(each, calls), status.worker_row(each)
    return {**row, "state": state} if state.startswith("hung") else row


def _one(root: Path, pid: int) -> WorkerStatus:
    found = _everywhere(root)
    for each in found:
        if each.pid == pid and each.is_here:
            return each
    if any(each.pid == pid for each in found):
        raise click.ClickException(
            f"worker {pid} runs in another PID namespace, such as that of a container, or as another user: "
            "its number means nothing here; give this command there"
        )
    ours = [each.pid for each in found if each.is_here]
    raise click.ClickException(f"{pid} is not a worker of this store; its workers here are: {ours}")


def _tell(pid: int, number: signal.Signals, is_meant: Callable[[], bool]) -> None:
    """Send a signal to a process that is looked at when nobody else can get its number any more."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        raise click.ClickException(f"process {pid} has ended") from None
    try:
        if not is_meant():
            raise click.ClickException(f"process {pid} has ended meanwhile")
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        raise click.ClickException(f"process {pid} has ended meanwhile") from None
    finally:
        os.close(descriptor)


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise click.ClickException(f"{what} after {_WAIT_S:.0f} s")
        time.sleep(_LOOK_EVERY_S)
