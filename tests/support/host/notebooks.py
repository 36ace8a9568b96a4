"""Notebooks: a real IPython kernel, whose cells are run by a client as Jupyter does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LONG_S = 60.0


@contextmanager
def started_kernel(directory: Path) -> Iterator[Kernel]:
    """Run a kernel in a directory."""
    from jupyter_client import manager  # noqa: PLC0415 - not every environment has it

    started, client = manager.start_new_kernel(cwd=str(directory), extra_arguments=["--log-level=ERROR"])
    try:
        running = Kernel(client, started.interrupt_kernel)
        running.run(f"import sys; sys.path.insert(0, {str(Path(__file__).parents[3])!r})")
        yield running
    finally:
        client.stop_channels()
        started.shutdown_kernel(now=True)


class Kernel:
    """A kernel in a directory of its own; ``interrupt`` interrupts it."""

    def __init__(self, client: Any, interrupt: Callable[[], None]) -> None:
        self._client = client
        self._interrupt = interrupt

    def run(self, code: str) -> str:
        """Run a cell; return its value as text. Fails with the traceback if the cell raises."""
        values: list[str] = []

        def listen(message: dict[str, Any]) -> None:
            if message["msg_type"] == "execute_result":
                values.append(message["content"]["data"]["text/plain"])

        reply = self._client.execute_interactive(code, timeout=LONG_S, output_hook=listen, store_history=False)
        assert reply["content"]["status"] == "ok", "\n".join(reply["content"].get("traceback", []))
        return values[0] if values else ""

    def begin(self, code: str) -> None:
        """Run a cell without waiting for it."""
        self._client.execute(code, store_history=False)

    def interrupt(self) -> None:
        """Do what the button of a notebook does."""
        self._interrupt()

    def ended(self) -> str:
        """Wait for the end of the cell that was begun, and return the name of the exception that it raised."""
        return str(self._client.get_shell_msg(timeout=LONG_S)["content"].get("ename", ""))

    def shown(self, code: str) -> dict[str, str]:
        """Run a cell, and return what it displays, by kind."""
        found: list[dict[str, str]] = []

        def listen(message: dict[str, Any]) -> None:
            if message["msg_type"] == "display_data":
                found.append(message["content"]["data"])

        self._client.execute_interactive(code, timeout=LONG_S, output_hook=listen)
        return found[0]

    def updated(self, holds: Callable[[str], bool]) -> str:
        """Wait for an update of a view whose text satisfies a condition."""
        until = time.monotonic() + LONG_S
        while time.monotonic() < until:
            message = self._client.get_iopub_msg(timeout=LONG_S)
            if message["msg_type"] == "update_display_data":
                text = str(message["content"]["data"]["text/html"])
                if holds(text):
                    return text
        raise AssertionError("no such update came")
