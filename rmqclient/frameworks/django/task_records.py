"""Task records: what became of each task, in a table that every process sees.

The row is written by the transaction that enqueues the task, and by the worker at the begin and the end of each
attempt. A worker that dies leaves the task RUNNING until the next attempt begins, or its message is a dead letter.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from rmqclient.frameworks.django.models import TaskRecord
from rmqclient.frameworks.django.task_api import TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus


def add(database: str, result: TaskResult) -> None:
    """Write a new row, in the present transaction of a database."""
    TaskRecord.objects.using(database).create(
        id=result.id,
        backend=result.backend,
        task=result.task.module_path,
        queue_name=result.task.queue_name,
        run_after=result.task.run_after,
        args=result.args,
        kwargs=result.kwargs,
        status=result.status,
        enqueued_at=result.enqueued_at,
    )


def note(database: str, result: TaskResult, returned: Any) -> None:
    """Write down how a task stands. Errors and workers of earlier attempts stay. Nothing happens without a row."""
    row = TaskRecord.objects.using(database).filter(id=result.id).first()
    if row is None:
        return
    row.status = result.status
    row.started_at = row.started_at or result.started_at
    row.last_attempted_at = result.last_attempted_at
    row.finished_at = result.finished_at
    known = row.worker_ids[: result.attempts - 1]
    row.worker_ids = [*known, *result.worker_ids[len(known) :]]
    earlier = [each for each in row.errors if each["attempt"] < result.attempts]
    row.errors = [*earlier, *({"attempt": result.attempts, **dataclasses.asdict(each)} for each in result.errors)]
    row.return_value = returned
    row.save(using=database)


def give_up(backend: str, database: str, result_id: str, error: TaskError, stored_at: datetime) -> TaskResult | None:
    """Let a task have FAILED that nobody ended, and return it; None if it has ended, or was sent again since then."""
    row = TaskRecord.objects.using(database).filter(id=result_id, backend=backend).first()
    if row is None or row.status not in (TaskResultStatus.READY, TaskResultStatus.RUNNING):
        return None
    stored_at = stored_at if settings.USE_TZ else timezone.make_naive(stored_at)
    if row.last_attempted_at is not None and row.last_attempted_at > stored_at:
        return None
    row.status, row.finished_at = TaskResultStatus.FAILED, timezone.now()
    row.errors = [*row.errors, {"attempt": len(row.worker_ids), **dataclasses.asdict(error)}]
    row.save(using=database)
    try:
        return found(backend, database, result_id)
    except ImportError:  # that is why it failed
        return None


def found(backend: str, database: str, result_id: str) -> TaskResult:
    """Return what a row of a backend's task says. Raises TaskResultDoesNotExist."""
    row = TaskRecord.objects.using(database).filter(id=result_id, backend=backend).first()
    if row is None:
        raise TaskResultDoesNotExist(result_id)
    task = dataclasses.replace(
        import_string(row.task), backend=row.backend, queue_name=row.queue_name, run_after=row.run_after
    )
    result = TaskResult(
        task=task,
        id=row.id,
        status=TaskResultStatus(row.status),
        enqueued_at=row.enqueued_at,
        started_at=row.started_at,
        last_attempted_at=row.last_attempted_at,
        finished_at=row.finished_at,
        args=row.args,
        kwargs=row.kwargs,
        backend=row.backend,
        errors=[
            TaskError(exception_class_path=each["exception_class_path"], traceback=each["traceback"])
            for each in row.errors
        ],
        worker_ids=row.worker_ids,
    )
    object.__setattr__(result, "_return_value", row.return_value)
    return result


def forget_before(moment: datetime, using: str = "default") -> int:
    """Delete the rows of tasks that ended before a time; return how many there were."""
    return int(TaskRecord.objects.using(using).filter(finished_at__lt=moment).delete()[0])
