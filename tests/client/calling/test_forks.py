"""Forks: a child that a handler forks leaves the thread and the message to its parent."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Batch, Message, Producer
from rmqclient.store import open_store
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


@pytest.mark.parametrize("has_queues", [True, False], ids=["with its queues", "before the topic is there"])
def test_a_child_of_the_program_that_leaves_the_block_takes_nothing_from_its_parent(
    tmp_path: Path, has_queues: bool
) -> None:
    # Given a consumer that runs, with a lifespan, in a program
    app, handled, ended = App(tmp_path / "store"), list[object](), tmp_path / "ended"

    @app.lifespan
    def life() -> Iterator[None]:
        yield
        ended.touch()

    app.handler("t", group="g", order="queue")(handled.append)
    with Producer(tmp_path / "store") as producer, app.running() as consumer:
        if has_queues:
            producer.create_topic("t", 2)
            wait_for(lambda: len(consumer.subscriptions[0].rebalancer.queues) == 2, "it has the queues")
        before = places(tmp_path / "store")

        # When the program forks, and the child leaves the block, as sys.exit does
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = consumer.stop()
                consumer.close()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)

        # Then the child ends, and the parent has its places and its lifespan, and goes on
        assert os.waitstatus_to_exitcode(status) == 0
        assert places(tmp_path / "store") == before
        assert not ended.exists()
        producer.send("t", b"x")
        wait_for(lambda: handled, "its parent goes on")
    assert ended.exists()


def places(root: Path) -> list[tuple[int, int, str]]:
    """Return the places that members have in groups."""
    with open_store(root, housekeeping=False) as store:
        return [(each.slot, each.incarnation, each.group) for each in store.members().roll.all()]
