"""Owned: the supervisor of ``with app.workers()``, which ends with the block.

It supervises as ``rmq run`` does. The process that has the block starts it with a connection: what comes over it first
is a :class:`~rmqclient.consuming.workers.Plan`. It says there that all workers are ready, or why it ends.
"""

from __future__ import annotations

import contextlib
import os
import sys

from multiprocess.connection import Connection

from rmqclient.consuming.workers import READY, Plan
from rmqclient.errors import QueueError
from rmqclient.health.service_manager import ServiceManager
from rmqclient.workers.exit_codes import ExitCode
from rmqclient.workers.processes import places, supervisor
from rmqclient.workers.processes.child import start_fork_server
from rmqclient.workers.processes.logs import configure_logging
from rmqclient.workers.processes.reporting import Reporting
from rmqclient.workers.processes.signals import SignalPipe
from rmqclient.workers.processes.worker import Boot
from rmqclient.workers.processes.worker_life import Limits

_WHY = {
    ExitCode.USAGE: "a worker cannot load the handlers",
    ExitCode.STORE_CANNOT_BE_OPENED: "the directory of the store is another one now",
    ExitCode.REFUSED: "a group refused a worker, because its members have another subscription",
    ExitCode.CRASH_LOOP: "every worker died again and again",
}


def main() -> None:
    """Supervise until the block ends; leaves by ``SystemExit`` with an :class:`ExitCode`."""
    owner = Connection(int(sys.argv[1]))
    sys.argv[1:] = []  # the application's own code looks there
    os.set_inheritable(owner.fileno(), False)
    with SignalPipe(*supervisor.SIGNALS) as signal_pipe, contextlib.suppress(EOFError):
        plan: Plan = owner.recv()
        sys.path[:] = plan.path
        configure_logging(plan.log_level)
        try:
            code = _supervise(plan, owner, signal_pipe)
        except (QueueError, OSError) as error:
            _tell(owner, f"{type(error).__name__}: {error}")
            sys.exit(ExitCode.FAILED)
        if code in _WHY:
            _tell(owner, f"{_WHY[code]}: the log on standard error says more")
        sys.exit(code)


def _supervise(plan: Plan, owner: Connection, signal_pipe: SignalPipe) -> ExitCode:
    limits = Limits(shutdown_timeout_s=plan.timeout_s, message_time_limit_s=plan.time_limit_s)
    boot = Boot(
        root=plan.root,
        config=plan.config,
        app=plan.app,
        before_import=plan.before_import,
        log_level=plan.log_level,
    )
    start_fork_server()  # before the store and the housekeeper, which may start threads
    with places.for_supervisor(plan.root, plan.config) as place:
        signal_pipe.install()
        return supervisor.Supervisor(
            place.workers,
            boot,
            signal_pipe,
            processes=plan.processes,
            limits=limits,
            member_name=plan.member_name,
            reporting=Reporting(_Owner(owner)),
            check_in_place=place.check_in_place,
            mark=place.mark,
            application="a block of a script",
            owner=owner,
        ).run()


class _Owner(ServiceManager):
    """The process that has the block: it is told when all workers are ready."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def ready(self, status: str) -> None:
        """Say so."""
        super().ready(status)
        _tell(self._connection, READY)


def _tell(owner: Connection, word: str) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended
        owner.send(word)


if __name__ == "__main__":
    main()
