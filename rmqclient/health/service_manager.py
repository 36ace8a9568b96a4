"""ServiceManager: tells systemd how this process is, by the datagrams of sd_notify(3).

============================  =====================================================================================
message                       when
============================  =====================================================================================
``READY=1``                   the process does what it was started for
``STATUS=...``                whenever the words change
``WATCHDOG=1``                :meth:`ServiceManager.alive` was called and a quarter of ``WATCHDOG_USEC`` has passed
``STOPPING=1``                it ends, with ``EXTEND_TIMEOUT_USEC`` for how long that may take
============================  =====================================================================================

Without ``NOTIFY_SOCKET`` nothing is told. A message that cannot be delivered is lost: nothing waits for a service
manager.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Final

from rmqclient.store.closing import Closing

_SOCKET: Final = "NOTIFY_SOCKET"
_WATCHDOG: Final = "WATCHDOG_USEC"
_WATCHDOG_PID: Final = "WATCHDOG_PID"
_US: Final = 1_000_000
_WATCHDOG_PART: Final = 4
"""A message in each quarter of the watchdog's time: systemd advises half of it, and a turn of a loop may be late."""


class ServiceManager(Closing):
    """The process that started this one and wants to be told; a context manager.

    ``address`` is a path, or a name that begins with ``@`` for a socket without a file; empty tells nobody.
    ``watchdog_s`` is the time after which a silent process is ended, 0 for none.
    """

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) if address else None
        self._watchdog_s = watchdog_s
        self._next_beat_at = 0.0
        self._status = ""

    @classmethod
    def of_this_process(cls) -> ServiceManager:
        """Return what the environment names, and take the names out of it: no child speaks for this process."""
        address = os.environ.pop(_SOCKET, "")
        watchdog, pid = os.environ.pop(_WATCHDOG, ""), os.environ.pop(_WATCHDOG_PID, "")
        is_ours = address.startswith(("/", "@")) and pid in ("", str(os.getpid()))
        return cls(
            address if address.startswith(("/", "@")) else "",
            int(watchdog) / _US if is_ours and watchdog.isdecimal() else 0.0,
        )

    @property
    def beat_interval_s(self) -> float | None:
        """How often :meth:`alive` must be called at least; None without a watchdog."""
        return self._watchdog_s / _WATCHDOG_PART or None

    def ready(self, status: str) -> None:
        """Say that the process does its work; ``status`` in words."""
        self._status = status
        self._tell("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        """Say how it is in words, if that has changed."""
        if status != self._status:
            self._status = status
            self._tell(f"STATUS={status}")

    def stopping(self, status: str, within_s: float) -> None:
        """Say that it ends, which may take so long."""
        self._status = status
        self._tell("STOPPING=1", f"STATUS={status}", f"EXTEND_TIMEOUT_USEC={round(within_s * _US)}")

    def alive(self) -> None:
        """Keep the watchdog from ending the process. Call it where the work is done, and only when that goes on."""
        now = time.monotonic()
        if self._watchdog_s and now >= self._next_beat_at:
            self._next_beat_at = now + self._watchdog_s / _WATCHDOG_PART
            self._tell("WATCHDOG=1")

    def close(self) -> None:
        """Let go of the socket. Closing twice does nothing."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _tell(self, *lines: str) -> None:
        if self._socket is not None:
            text = "\n".join(" ".join(line.splitlines()) for line in lines)
            with contextlib.suppress(OSError):
                self._socket.sendto(text.encode(), self._address)
