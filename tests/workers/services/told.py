"""A service manager as systemd is one to its services: a datagram socket that takes what they tell."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.workers.supervised import LONG_S


class Told:
    """Takes the messages of sd_notify; a context manager. ``name`` is a path, or ``@name`` for a socket without one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.messages: list[dict[str, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{name[1:]}" if name.startswith("@") else name)

    def environment(self, watchdog_s: float | None = None) -> dict[str, str]:
        """What a service is started with."""
        watchdog = {} if watchdog_s is None else {"WATCHDOG_USEC": str(round(watchdog_s * 1e6))}
        return {"NOTIFY_SOCKET": self.name, **watchdog}

    def until(self, name: str, value: str | None = None) -> dict[str, str]:
        """Return the next message that has this name, and this value."""
        until = time.monotonic() + LONG_S
        while time.monotonic() < until:
            message = self.next(until - time.monotonic())
            if message and name in message and value in (None, message[name]):
                return message
        raise AssertionError(f"never told {name}={value}; told: {self.messages}")

    def next(self, within_s: float) -> dict[str, str] | None:
        """Return the next message, None if none comes in that time."""
        self._socket.settimeout(max(0.001, within_s))
        try:
            text = self._socket.recv(65_536).decode()
        except TimeoutError:
            return None
        self.messages.append(dict(line.split("=", 1) for line in text.splitlines()))
        return self.messages[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        if not self.name.startswith("@"):
            Path(self.name).unlink()
