"""What the frameworks lean on: a producer for each process, and what workers run before they import handlers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient import App
from rmqclient.errors import HandlerError
from rmqclient.testing.kit import Kit
from rmqclient.workers.loading import ImportedApp
from rmqclient.workers.processes.worker import Boot, load
from tests.frameworks import noted


def test_a_process_has_one_producer_and_a_forked_one_its_own(tmp_path: Path) -> None:
    app = App(tmp_path / "store")
    producer = app.shared_producer
    assert producer is app.shared_producer
    producer.send("orders", "parent")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            own = app.shared_producer
            own.send("orders", "child")
            own.close()
            code = int(own is producer)
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    producer.send("orders", "parent")
    producer.close()


def test_under_test_it_sends_to_the_store_of_the_test(rmq: Callable[..., Kit], tmp_path: Path) -> None:
    app = App(tmp_path / "store")
    kit = rmq(app)
    app.shared_producer.send("orders", "x")
    kit.assert_sent("orders", times=1)
    kit.close()
    assert not (tmp_path / "store").exists()


def test_a_worker_runs_what_comes_before_the_import_of_its_target(tmp_path: Path) -> None:
    # Given a module that can be imported when a function of another module has run
    app = App(tmp_path / "store")
    app.on_import(noted.begin)
    noted.begun.clear()

    # When a worker loads it
    boot = Boot(
        root=tmp_path / "store",
        config=None,
        app=ImportedApp.of("tests.frameworks.needing:app"),
        before_import=app.hooks.before_import(),
    )
    loaded = load(boot)

    # Then the function has run before
    assert noted.begun == ["begun"]
    assert loaded is not None
    assert [each.topic for each in loaded.handlers] == ["orders"]


def test_what_comes_before_the_import_must_be_importable(tmp_path: Path) -> None:
    app = App(tmp_path / "store")
    app.on_import(lambda: None)
    with pytest.raises(HandlerError, match="put it into a module that workers can import"):
        app.hooks.before_import()
    with pytest.raises(HandlerError, match="contains `yield`"):
        app.on_import(generator)


def generator() -> object:
    """Is no function that runs when it is called."""
    yield
