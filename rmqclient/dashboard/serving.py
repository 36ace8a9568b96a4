"""Serving: the dashboard as a program: its address, its token, and uvicorn."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import stat
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from rmqclient.dashboard.application import Dashboard
from rmqclient.dashboard.gate import hosts_of
from rmqclient.errors import CannotListen
from rmqclient.opening import MessageStore
from rmqclient.schedules.cron import Cron

_ENDS_IN_S = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How a dashboard is reached."""

    host: str = "127.0.0.1"
    port: int = 8650
    """0 takes one that is free."""
    unix_socket: Path | None = None
    """Instead of an address: a socket that only its owner may open, for a proxy."""
    token: str | None = None
    """None makes one."""
    allowed_hosts: Collection[str] = ()
    """Further names that clients may use, with or without a port."""
    allow_actions: bool = False
    author_header: str | None = None
    """By which a proxy says who asks."""
    crons: Collection[Cron] | None = None
    """The schedules to show."""


def serve(store: MessageStore, serving: Serving, say: Callable[[str], None]) -> None:
    """Answer until TERM or Ctrl-C comes; ``say`` gets the address when the dashboard listens.

    Raises CannotListen, and ValueError for a token that can be guessed.
    """
    token = serving.token or secrets.token_urlsafe(32)
    with _listening(serving) as (listener, shown, hosts):
        app = Dashboard(
            store,
            token=token,
            hosts=hosts,
            allow_actions=serving.allow_actions,
            author_header=serving.author_header,
            crons=serving.crons,
        )
        config = uvicorn.Config(
            app,
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_ENDS_IN_S,
        )
        listener.listen()  # who reads the address can connect, and waits until the server answers
        say(f"{shown}/?token={token}")
        with contextlib.closing(app), _term_as_an_end():
            uvicorn.Server(config).run(sockets=[listener])


@contextlib.contextmanager
def _term_as_an_end() -> Iterator[None]:
    """Let TERM end the block. uvicorn sends it once more after its own end, which would kill the process at once."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _listening(serving: Serving) -> Iterator[tuple[socket.socket, str, Collection[str]]]:
    """Yield the socket, its address for people, and the names that clients may use."""
    if serving.unix_socket is not None:
        with _unix(serving.unix_socket) as listener:
            yield listener, "http://localhost", hosts_of("localhost", None, serving.allowed_hosts)
        return
    with socket.socket(socket.AF_INET6 if ":" in serving.host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((serving.host, serving.port))
        except OSError as error:
            raise CannotListen(f"{serving.host}:{serving.port} cannot be listened on: {error.strerror}") from error
        port = listener.getsockname()[1]
        host = f"[{serving.host}]" if ":" in serving.host else serving.host
        yield listener, f"http://{host}:{port}", hosts_of(serving.host, port, serving.allowed_hosts)


@contextlib.contextmanager
def _unix(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        umask = os.umask(0o177)
        try:
            _remove_left_behind(path)
            listener.bind(str(path))
            own = path.lstat()
        except OSError as error:
            raise CannotListen(f"{path} cannot be listened on: {error.strerror}") from error
        finally:
            os.umask(umask)
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError):  # another process may have a socket of that name by now
                if os.path.samestat(path.lstat(), own):
                    path.unlink()


def _remove_left_behind(path: Path) -> None:
    """Remove the socket of a process that has ended. Raises CannotListen for one that lives, and any other file."""
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise CannotListen(f"{path} cannot be listened on: it is another file, and stays: name a path for the socket")
    with socket.socket(socket.AF_UNIX) as caller:
        caller.setblocking(False)  # a process that stands still answers nobody
        try:
            caller.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass
    raise CannotListen(f"{path} cannot be listened on: another process does: stop it first, or name another path")
