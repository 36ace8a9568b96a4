"""Task runs: what a worker does with a task: find its function, call it, and say how it ended.

A task that raises is READY again as long as the retry policy of its backend has another attempt for it; then it has
FAILED, and its message is a dead letter. ``task_started`` is sent for each attempt, ``task_finished`` at the end.

A worker that was killed at every attempt has said none of this. So a handler reads the dead letters of the tasks, and
ends those that still look as if they ran.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import traceback
from datetime import UTC, datetime
from typing import Any

import orjson
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.module_loading import import_string

from rmqclient.failures.failure import DEATH, DEATHS, history
from rmqclient.failures.retry import Outcome
from rmqclient.frameworks.django.task_api import (
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_finished,
    task_started,
)
from rmqclient.message import ReceivedMessage


def run_task(message: ReceivedMessage) -> None:
    """Run the task of a message. Raises what the task raises, and LookupError if its function is not there."""
    sent = orjson.loads(message.body)
    backend = task_backends[sent["backend"]]
    result = _result(sent, message.delivery_attempt)
    _set(result, status=TaskResultStatus.RUNNING, started_at=timezone.now())
    task_started.send(type(backend), task_result=result)
    _note(backend, result)
    try:
        returned = _call(result)
    except Exception as error:
        _fail(backend, result, error)
        raise
    _set(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=returned)
    _note(backend, result, returned)
    task_finished.send(type(backend), task_result=result)


class WorkerDied(Exception):
    """Of a failed task: the processes died that ran it, or lost its message."""


def end_dead_task(message: ReceivedMessage) -> None:
    """Let a task have FAILED whose message is a dead letter, if no worker has written that down."""
    from rmqclient.frameworks.django.task_records import give_up

    sent = orjson.loads(message.body)
    backend = task_backends[sent["backend"]]
    stored_at = datetime.fromtimestamp(message.store_timestamp / 1000, UTC)
    result = give_up(sent["backend"], backend.settings.alias, sent["id"], _last_error(message), stored_at)
    if result is not None:
        task_finished.send(type(backend), task_result=result)


def _last_error(message: ReceivedMessage) -> TaskError:
    last = (history(message.properties) or [{}])[-1]
    name, text = str(last.get("error", DEATH)), str(last.get("text", ""))
    path = f"{__name__}.{WorkerDied.__name__}" if name in DEATHS else name if "." in name else f"builtins.{name}"
    return TaskError(exception_class_path=path, traceback=str(last.get("trace") or text))


def _result(sent: dict[str, Any], attempt: int) -> TaskResult:
    """Return the result as it is before this attempt; earlier attempts ran in workers that are not known."""
    now = timezone.now()
    return TaskResult(
        task=_task(sent),
        id=sent["id"],
        status=TaskResultStatus.READY,
        enqueued_at=parse_datetime(sent["enqueued_at"]),
        started_at=None,
        last_attempted_at=now,
        finished_at=None,
        args=sent["args"],
        kwargs=sent["kwargs"],
        backend=sent["backend"],
        errors=[],
        worker_ids=["unknown"] * (attempt - 1) + [f"{socket.gethostname()}-{os.getpid()}"],
    )


def _task(sent: dict[str, Any]) -> Task:
    path = sent["task"]
    try:
        task = import_string(path)
    except ImportError as error:
        raise LookupError(
            f"the task {path} cannot be imported here: {error}; does this worker have its code?"
        ) from error
    if not isinstance(task, Task):
        kind = type(task).__name__
        raise LookupError(f"{path} is a {kind}, not a task: decorate it with @task")  # noqa: TRY004 - its name is wrong
    run_after = sent["run_after"] and parse_datetime(sent["run_after"])
    return dataclasses.replace(task, backend=sent["backend"], queue_name=sent["queue_name"], run_after=run_after)


def _call(result: TaskResult) -> Any:
    """Return what the task returns, as JSON would give it back. Raises TypeError if JSON cannot hold it."""
    given = (TaskContext(task_result=result), *result.args) if result.task.takes_context else result.args
    return normalize_json(result.task.call(*given, **result.kwargs))


def _fail(backend: Any, result: TaskResult, error: Exception) -> None:
    kind = type(error)
    path = f"{kind.__module__}.{kind.__qualname__}"
    result.errors.append(TaskError(exception_class_path=path, traceback="".join(traceback.format_exception(error))))
    if backend.settings.retry.outcome(result.attempts, error) is Outcome.RETRY:
        _set(result, status=TaskResultStatus.READY)
        _note(backend, result)
        return
    _set(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
    _note(backend, result)
    task_finished.send(type(backend), task_result=result)


def _set(result: TaskResult, **values: Any) -> None:
    """Change a result, which is frozen for the application."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _note(backend: Any, result: TaskResult, returned: Any = None) -> None:
    """Write down how the task stands, if its backend keeps results."""
    if backend.settings.results:
        from rmqclient.frameworks.django.task_records import note

        note(backend.settings.alias, result, returned)
