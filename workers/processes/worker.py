"""What runs inside a worker process: the handlers of one application, and a heartbeat.

The life of a worker, as its slot of the worker table shows it::

    STARTING   the application is loaded, the store is opened, the groups are joined
    READY      messages are delivered
    DRAINING   no new message is taken; messages in flight may finish until a deadline
    OVERDUE    as READY, and a schedule has a tick that no process has sent
    LOSING     as DRAINING, because a thread of the library was lost

It leaves READY for one of three reasons:

- SIGTERM or SIGHUP: it drains as long as :attr:`Boot.drain_timeout_s` allows.
- Its supervisor has died, which closes a pipe that only the supervisor held open: it drains for at most
  ``ORPHAN_DRAIN_TIMEOUT_S``, because no supervisor would end it if a handler hung.

- It has lost a thread of the library (:mod:`rmqclient.store.threads.guarded`): it drains as at SIGTERM, in the state
  LOSING, and its supervisor replaces it.

SIGINT does nothing: a terminal sends it to the whole process group, and the supervisor decides what it means. It is
not ignored, because what a handler starts would ignore it, too. The worker takes its signals over again when the
application was loaded, and when its lifespans have begun: a module may have set handlers that end the process.
SIGUSR1 writes the stacks of all threads for ``rmq worker stack`` (:mod:`rmqclient.workers.processes.stacks`).
SIGABRT, and every crash in compiled code, prints the stacks of all threads on standard error (``faulthandler``).

Everything here is importable and gets its inputs from a :class:`Boot`, so that a fresh interpreter can run it.
"""

from __future__ import annotations

import atexit
import faulthandler
import logging
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import multiprocess
import multiprocess.connection

from rmqclient.admin.workers import WorkerSlot, WorkerState
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.errors import ClientIdInUse, HandlerError, MembershipRefused, QueueError, StoreReplaced
from rmqclient.failures.application_errors import text_of
from rmqclient.tables.app_table import read_by_worker
from rmqclient.workers.exit_codes import WorkerExit
from rmqclient.workers.loading import ImportedApp, TargetError
from rmqclient.workers.processes import places, signals
from rmqclient.workers.processes.left_behind import kill_descendants
from rmqclient.workers.processes.logs import LogFormat, configure_logging, let_prints_out
from rmqclient.workers.processes.stacks import tell_stacks

if TYPE_CHECKING:
    from rmqclient import App, StoreConfig
    from rmqclient.consuming.copies import CopiedApp

BEAT_INTERVAL_S = 0.5
ORPHAN_DRAIN_TIMEOUT_S = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """All inputs of a worker. Its supervisor sets the last three."""

    root: Path | str
    """The directory of a store, or the URL of a cluster."""

    config: StoreConfig | None
    app: ImportedApp | CopiedApp
    before_import: bytes
    """Functions that run before ``app`` is loaded: :meth:`rmqclient.calling.hooks.Hooks.before_import`."""

    log_level: str | int = "INFO"
    log_format: LogFormat = "text"

    slot: int = 0
    """The worker's slot of the worker table, claimed by the supervisor."""

    drain_timeout_s: float = 0.0
    """How long the worker may drain after SIGTERM."""

    member_name: str = "worker-1"
    """The name under which broadcast handlers keep their offsets. A worker that replaces another one has its name."""


def main(boot: Boot) -> None:
    """The target of the process. Leaves by ``SystemExit`` with a :class:`~rmqclient.workers.exit_codes.WorkerExit`."""
    faulthandler.enable(all_threads=True)
    tell_stacks()
    stop = signals.SignalPipe(signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    stop.install()
    signals.unblock()
    configure_logging(boot.log_level, boot.log_format)
    let_prints_out()
    code = _run_until_told(boot, stop)
    atexit._run_exitfuncs()  # a forked process ends without them  # noqa: SLF001
    if code in (WorkerExit.UNFINISHED, WorkerExit.THREAD_LOST):
        _leave_threads_behind(code)
    sys.exit(code)


def _run_until_told(boot: Boot, stop: signals.SignalPipe) -> WorkerExit:
    app = load(boot)
    if app is None:
        return WorkerExit.CANNOT_BOOT
    stop.install()
    try:
        with (
            places.for_worker(boot.root, boot.config) as working,
            read_by_worker(working.place),
        ):
            consumer = PushConsumer(
                working.place,
                app.handlers,
                member_name=boot.member_name,
                config=app.consumer,
                crons=app.crons,
                hooks=app.hooks,
                on_loss=lambda: os.kill(os.getpid(), signal.SIGTERM),
            )
            slot = working.workers.attach(boot.slot)
            with Heartbeat(slot, consumer, working.check_in_place) as heartbeat:
                return _deliver(consumer, heartbeat, stop, boot.drain_timeout_s)
    except ClientIdInUse as error:
        _log.error("%s: %s", type(error).__name__, error)
        return WorkerExit.NAME_TAKEN
    except MembershipRefused as error:
        _log.error("%s: %s", type(error).__name__, error)
        return WorkerExit.REFUSED
    except HandlerError as error:
        _log.error("%s", error)
        return WorkerExit.CANNOT_BOOT
    except StoreReplaced:  # which was said when it was found
        return WorkerExit.STORE_REPLACED
    except QueueError as error:
        _log.error("%s: %s", type(error).__name__, error)
        return WorkerExit.FAILED


def load(boot: Boot) -> App | None:
    """Return the application as it is now; log why and return None if it cannot be loaded here."""
    try:
        for each in pickle.loads(boot.before_import):
            each()
        app: App = boot.app.load()
        return app
    except (TargetError, QueueError) as error:
        _log.error("handlers cannot be loaded: %s", error, exc_info=error.__cause__)
    except (Exception, SystemExit):  # noqa: BLE001 - the application's modules may raise anything while they are imported
        _log.exception("handlers cannot be loaded")
    return None


def _deliver(
    consumer: PushConsumer, heartbeat: Heartbeat, stop: signals.SignalPipe, drain_timeout_s: float
) -> WorkerExit:
    try:
        consumer.start(on_ready=lambda: heartbeat.enter(WorkerState.READY))
    except QueueError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - lifespans are the application's
        _log.error("the worker cannot start: %s", _told(error), exc_info=error)
        return WorkerExit.FAILED
    stop.install()
    timeout_s = _wait_for_the_end(stop, drain_timeout_s)
    heartbeat.enter(WorkerState.DRAINING if consumer.loss is None else WorkerState.LOSING)
    consumer.stop_taking()
    left = consumer.drain(timeout_s)
    try:
        consumer.close()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the same
        _log.error("the worker stops; closing it failed: %s", _told(error), exc_info=error)
    if heartbeat.is_replaced:
        return WorkerExit.STORE_REPLACED
    if consumer.loss is not None:
        return WorkerExit.THREAD_LOST
    if left:
        _log.warning("%d messages were still in flight after %.1f s; they are delivered again", left, timeout_s)
        return WorkerExit.UNFINISHED
    return WorkerExit.STOPPED


def _told(error: BaseException) -> str:
    """Return one line: which function of the application failed, and how."""
    return "; ".join([*getattr(error, "__notes__", ()), f"{type(error).__name__}: {text_of(error)}"])


def _wait_for_the_end(stop: signals.SignalPipe, drain_timeout_s: float) -> float:
    """Wait for a signal or for the supervisor's death; return how many seconds draining may take."""
    supervisor = multiprocess.parent_process().sentinel
    while True:
        ready = multiprocess.connection.wait([stop, supervisor])
        if supervisor in ready:
            _log.warning("the supervisor is gone: stopping")
            return ORPHAN_DRAIN_TIMEOUT_S
        if {signal.SIGTERM, signal.SIGHUP}.intersection(stop.read()):
            return drain_timeout_s


def _leave_threads_behind(code: WorkerExit) -> None:
    """End now: an interpreter would wait for the handlers' threads, which are past their deadline.

    What they had started ends with them, also when no supervisor is there to see to it.
    """
    kill_descendants(os.getpid())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Heartbeat:
    """A thread that reports to the worker table every half second that this process runs, and what its consumer does.

    A beat says only that Python code gets its turn here; the age of its message shows a handler that never returns. If
    the beat itself fails, the thread ends, and the supervisor notices the silence.

    It also looks whether the directory of the store is still the one that is open, and tells the worker to stop when it
    is not.

    Every beat repeats the state, because the supervisor resets the slot when it has learnt the process id, and a quick
    worker may be ready before that.
    """

    def __init__(self, slot: WorkerSlot, consumer: PushConsumer, check_in_place: Callable[[], None]) -> None:
        self.is_replaced = False
        """Whether the directory of the store is another one now."""
        self._check_in_place = check_in_place
        self._slot = slot
        self._consumer = consumer
        self._state = WorkerState.STARTING
        self._overdue: tuple[str, ...] = ()
        self._fork_server = os.getppid()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_until_ended, name="heartbeat", daemon=True)

    def enter(self, state: WorkerState) -> None:
        """Report another state of the worker's life."""
        self._state = state
        self.beat()

    def beat(self) -> None:
        """Report once."""
        now = self._consumer.counters
        if now.overdue != self._overdue:
            self._overdue = now.overdue
            if now.overdue:
                _log.error("overdue for a minute, and sent by no process: schedule %s", ", ".join(now.overdue))
        is_overdue = self._state is WorkerState.READY and now.overdue
        self._slot.set_state(WorkerState.OVERDUE if is_overdue else self._state)
        self._slot.report(
            in_flight=now.in_flight,
            handled=now.handled,
            failed=now.failed,
            message_started_ns=now.message_started_ns,
        )
        self._slot.beat()

    def __enter__(self) -> Self:
        self.beat()
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _beat_until_ended(self) -> None:
        while not self._ended.wait(BEAT_INTERVAL_S):
            self.beat()
            if not self.is_replaced:
                self._look()
            if os.getppid() != self._fork_server:
                # Without the fork server no process learns how this one ends, so it is replaced.
                os.kill(os.getpid(), signal.SIGTERM)
                self._fork_server = os.getppid()

    def _look(self) -> None:
        try:
            self._check_in_place()
        except StoreReplaced:
            self.is_replaced = True
            os.kill(os.getpid(), signal.SIGTERM)
        except QueueError as error:  # the disk fails: what needs it says so
            _log.error("%s", error)
