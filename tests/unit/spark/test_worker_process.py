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


def is_collected(value: list[list[int]]) -> bool:
    """Whether a collection looks at an object: not at those that are kept. Others go at any time, so no count tells."""
    return any(each is value for each in gc.get_objects())


def test_the_first_task_keeps_what_is_there_and_the_next_ones_add_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", object)
    worker_process.keep_objects()
    assert gc.get_freeze_count() > 10_000
    more: list[list[int]] = [[]]
    worker_process.keep_objects()
    assert is_collected(more)


def test_a_task_that_finds_more_modules_keeps_what_came_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", object)
    worker_process.keep_objects()
    more: list[list[int]] = [[]]
    assert is_collected(more)
    monkeypatch.setitem(sys.modules, "another", ModuleType("another"))
    worker_process.keep_objects()
    assert not is_collected(more)


def test_nothing_is_kept_outside_of_a_task() -> None:
    more: list[list[int]] = [[]]
    worker_process.keep_objects()
    assert is_collected(more)
