"""Forks: a child that a handler forks leaves the thread and the message to its parent."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Batch, Message, Producer
from tests.client.conftest import wait_for

_WENT_ON = 99
"""The exit code of a child that handles a message as its parent does."""


def fail() -> None:
    raise ValueError("no")


@pytest.mark.parametrize(
    "options", [{}, {"order": "queue"}, {"order": "key"}, {"batch": Batch(2)}, {"coroutines": 1}], ids=str
)
@pytest.mark.parametrize(
    ("leave", "code"),
    [(fail, 1), (sys.exit, 0), (lambda: sys.exit(5), 5), (lambda: sys.exit("no"), 1)],
    ids=["error", "exit", "exit with a code", "exit with a text"],
)
def test_a_child_that_a_handler_forks_ends_by_what_it_raises(
    tmp_path: Path, leave: Callable[[], None], code: int, options: dict[str, Any]
) -> None:
    app, children, ends, parent = App(tmp_path / "store"), list[int](), list[int](), os.getpid()

    def fork(message: Any) -> None:
        if os.getpid() != parent:
            os._exit(_WENT_ON)
        child = os.fork()
        if child == 0:
            leave()
        children.append(child)

    async def fork_later(message: Any) -> None:
        fork(message)

    def has_ended() -> bool:
        child, status = os.waitpid(children[0], os.WNOHANG)
        ends.extend([os.waitstatus_to_exitcode(status)] if child else [])
        return bool(ends)

    app.handler("t", group="g", **options)(fork_later if "coroutines" in options else fork)
    with Producer(tmp_path / "store") as producer:
        producer.send(Message("t", b"x"), "a key")
        try:
            with app.running() as consumer:
                wait_for(lambda: consumer.counters.handled == 1, "its parent has handled the message")
                wait_for(has_ended, "the child has ended")
                assert consumer.counters.failed == 0
        finally:
            if not ends:
                with suppress(ProcessLookupError):
                    os.kill(children[0], signal.SIGKILL)
                os.waitpid(children[0], 0)
    assert ends == [code]
    assert len(children) == 1
