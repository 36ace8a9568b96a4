"""What a worker process of PySpark keeps between its tasks."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from pyspark import TaskContext

from rmqclient.spark.reading import worker_process


@pytest.fixture(autouse=True)
def _nothing_frozen() -> Iterator[None]:
    worker_process._keep_objects.cache_clear()
    yield
    gc.unfreeze()
    worker_process._keep_objects.cache_clear()


def test_the_first_task_keeps_what_is_there_and_the_next_ones_add_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", object)
    worker_process.keep_objects()
    kept = gc.get_freeze_count()
    assert kept > 10_000
    more = [[number] for number in range(1000)]
    worker_process.keep_objects()
    assert gc.get_freeze_count() <= kept
    assert len(more) == 1000


def test_a_task_that_finds_more_modules_keeps_what_came_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", object)
    worker_process.keep_objects()
    kept = gc.get_freeze_count()
    more = [[number] for number in range(1000)]
    monkeypatch.setitem(sys.modules, "another", ModuleType("another"))
    worker_process.keep_objects()
    assert gc.get_freeze_count() >= kept + len(more)


def test_nothing_is_kept_outside_of_a_task() -> None:
    before = gc.get_freeze_count()
    worker_process.keep_objects()
    assert gc.get_freeze_count() == before
