"""The process of the handlers under ``rmq dev``.

It imports the application, runs its handlers and schedules in threads, and shows what becomes of each message. It says
by one byte on a socket that the application was imported. It ends when it gets SIGTERM, or when the socket is closed
because the process that started it is gone. An error of the application ends it, with its traceback; the other process
starts it again when a file has changed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from rmqclient.app import App
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.errors import QueueError
from rmqclient.live.calls import frames_of, trace_of, watched_by
from rmqclient.live.wipe import WipeRefused, is_made_by_dev, mark, wipe
from rmqclient.names import function_name
from rmqclient.place import located, scheme_of, shown
from rmqclient.workers.development.terminal import Terminal, log_to, say, say_dim
from rmqclient.workers.exit_codes import ExitCode, WorkerExit
from rmqclient.workers.loading import TargetError, load_app, place_of
from rmqclient.workers.processes import signals

READY = b"."
OWN_STORE = ".rmq-dev"
"""The store where neither the code nor the command names one."""

_MEMBER = "dev-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """All inputs of the process, as they travel."""

    target: str
    groups: Sequence[str]
    root: str | None
    """What the command names, or all commands."""

    is_stronger: bool
    """Whether ``root`` is named for this command, so that it wins over the code."""

    has_wipe: bool
    has_yes: bool
    drain_timeout_s: float
    log_level: str
    control: int
    """The descriptor of the socket."""

    def packed(self) -> str:
        """Return the argument from which the process makes the same object."""
        return json.dumps(asdict(self))


def main() -> None:
    """Run until told to end; leaves by ``SystemExit``."""
    boot = Boot(**json.loads(sys.argv[1]))
    sys.argv[1:] = []  # the application's own code looks there
    faulthandler.enable(all_threads=True)
    stop = signals.SignalPipe(signal.SIGTERM, signal.SIGHUP)
    stop.install()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both processes, and the other one decides
    terminal = Terminal()
    log_to(terminal, boot.log_level)
    try:
        with socket.socket(fileno=boot.control) as control:
            sys.exit(_run(boot, control, stop, terminal))
    except TargetError as error:
        sys.exit(_unimported(error))
    except WipeRefused as error:
        say(f"rmq: {error}")
        sys.exit(ExitCode.USAGE)
    except QueueError as error:
        say(f"rmq: {type(error).__name__}: {error}")
        sys.exit(WorkerExit.FAILED)
    except Exception as error:  # noqa: BLE001 - a lifespan of the application
        say(trace_of(error).rstrip())
        sys.exit(WorkerExit.FAILED)


def _run(boot: Boot, control: socket.socket, stop: signals.SignalPipe, terminal: Terminal) -> int:
    begun = time.monotonic()
    app = load_app(boot.target, boot.groups)
    root = None if boot.root is None else located(boot.root)
    place = place_of(app, root, is_stronger=boot.is_stronger) or Path(OWN_STORE).absolute()
    with app.override(store=place), contextlib.suppress(BrokenPipeError):
        if boot.has_wipe:
            say(wipe(place, is_named=boot.is_stronger, is_sure=boot.has_yes))
        is_new = not scheme_of(str(place)) and not Path(place).exists()
        consumer = app.start(member_name=_MEMBER, around=watched_by(terminal.tell))
        if is_new:
            mark(Path(place))
        control.send(READY)
        _say_ready(app, place, time.monotonic() - begun)
        select.select([stop.fileno(), control.fileno()], [], [])
        return _end(consumer, boot.drain_timeout_s)
    return WorkerExit.FAILED


def _end(consumer: PushConsumer, timeout_s: float) -> int:
    """Let running handlers finish, and leave those behind that do not: the other process kills this one then."""
    left = consumer.stop(timeout_s)
    if not left:
        return WorkerExit.STOPPED
    say(f"{left} handlers still ran after {timeout_s:g} s; their messages are delivered again")
    signal.pause()
    return WorkerExit.UNFINISHED


def _say_ready(app: App, place: Path | str, took_s: float) -> None:
    made = "" if scheme_of(str(place)) or not is_made_by_dev(Path(place)) else ", made by rmq dev"
    say(f"{click.style('ready', fg='cyan', bold=True)} in {took_s:.2f} s, store {shown(place)}{made}")
    for handler in app.handlers:
        say(say_dim(f"  {handler.topic} -> {function_name(handler.function)} ({handler.group})"))
    for cron in app.crons:
        say(say_dim(f"  {cron.when}: {function_name(cron.function)} -> {cron.topic}"))


def _unimported(error: TargetError) -> int:
    """Show why the application cannot be imported, and return the exit code: the code is wrong, or the target is."""
    cause = error.__cause__
    if isinstance(cause, SyntaxError) or (cause is not None and frames_of(cause)):
        say(trace_of(cause).rstrip())
        return WorkerExit.CANNOT_BOOT
    say(f"rmq: {error}")
    return ExitCode.USAGE


if __name__ == "__main__":
    main()
