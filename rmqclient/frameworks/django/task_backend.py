"""Task backend: ``django.tasks`` over a store. Each queue is a topic, and the workers of ``manage.py rmq run`` run it.

::

    TASKS = {
        "default": {
            "BACKEND": "rmqclient.frameworks.django.RmqBackend",
            "QUEUES": ["default", "mail"],
            "OPTIONS": {"threads": 4, "retry": RetryPolicy(max_retries=3), "results": True},
        }
    }

=============  =================================================================================================
option         means
=============  =================================================================================================
``send``       when a task that is enqueued in a transaction is sent: ``"outbox"``, with the transaction, through
               any kill, the default where ``RMQ`` names an ``OUTBOX``; ``"commit"``, after it, the default
               elsewhere; ``"now"``, before it, also if it rolls back
``threads``    how many tasks of a queue each process runs at the same time; 1
``retry``      a :class:`rmqclient.RetryPolicy`; by default 16 retries within 5 hours, then a dead letter
``group``      name of the group that takes the tasks; ``tasks``
``results``    whether ``get_result`` finds them, in the table ``rmq_task`` of the database; false
``database``   alias of the database whose transactions and results are meant; ``RMQ["OUTBOX"]``, or ``default``
=============  =================================================================================================

A task runs at least once. Its attempt is ``context.attempt``; it has failed when it is a dead letter.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import secrets
from collections.abc import Iterable
from typing import Any, Literal

import orjson
from django.apps import apps
from django.core import checks
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils import timezone

from rmqclient.errors import HandlerError, InvalidName
from rmqclient.failures.retry import RetryPolicy, dead_letter_topic
from rmqclient.frameworks.django.application import app
from rmqclient.frameworks.django.sending import send_on_commit
from rmqclient.frameworks.django.settings import given
from rmqclient.frameworks.django.task_api import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultStatus,
    task_enqueued,
)
from rmqclient.frameworks.django.task_runs import end_dead_task, run_task
from rmqclient.handler import Handler
from rmqclient.message import Message

PREFIX = "tasks-"
"""Before the name of a queue, that of its topic."""

_LEAST, _MOST = -(2**63), 2**64 - 1
"""The integers that the message of a task can hold."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The ``OPTIONS`` of a backend, checked.

    Raises ValueError for a name, or a ``send``, that is not known, and TypeError for a ``retry`` that is no policy.
    """

    send: Literal["outbox", "commit", "now"] | None = None
    threads: int = 1
    retry: RetryPolicy = dataclasses.field(default_factory=RetryPolicy)
    group: str = "tasks"
    results: bool = False
    database: str | None = None

    def __post_init__(self) -> None:
        if self.send not in (None, "outbox", "commit", "now"):
            raise ValueError(f"send={self.send!r}: use 'outbox', 'commit' or 'now'")
        if not isinstance(self.retry, RetryPolicy):
            raise TypeError(f"retry={self.retry!r}: give a policy, such as RetryPolicy(max_retries=3)")

    @classmethod
    def of(cls, options: dict[str, Any]) -> Options:
        """Return options that were checked."""
        names = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            if name not in names:
                near = difflib.get_close_matches(str(name), names) or names
                raise ValueError(f"{name!r} is not an option of this backend: use {' or '.join(near)}")
        return cls(**options)

    @property
    def alias(self) -> str:
        """The alias of the database."""
        return str(self.database or given("OUTBOX") or DEFAULT_DB_ALIAS)

    @property
    def way(self) -> str:
        """When a task of a transaction is sent."""
        return self.send or ("commit" if given("OUTBOX") is None else "outbox")


class RmqBackend(BaseTaskBackend):
    """A backend of ``TASKS``. Its tasks may be plain or ``async``, wait for a ``run_after``, and have no priority.

    Raises ValueError and TypeError for options that are unknown or wrong.
    """

    supports_defer = True
    supports_async_task = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.settings = Options.of(self.options)
        self.supports_get_result = self.settings.results

    def topic_of(self, queue_name: str) -> str:
        """Return the topic of a queue."""
        return f"{PREFIX}{queue_name}" if self.alias == "default" else f"{PREFIX}{self.alias}-{queue_name}"

    def handlers(self) -> list[Handler]:
        """Return one handler for each queue, and one for dead letters if there are results to end.

        Raises InvalidName and HandlerError.
        """
        group = self.settings.group
        dead = Handler(topic=dead_letter_topic(group), group=f"{group}-dead", function=end_dead_task)
        return [
            Handler(
                topic=self.topic_of(queue),
                group=group,
                threads=self.settings.threads,
                retry=self.settings.retry,
                function=run_task,
            )
            for queue in sorted(self.queues)
        ] + [dead] * self.settings.results

    def validate_task(self, task: Task) -> None:
        """Raise InvalidTask for a task that this backend cannot run."""
        super().validate_task(task)
        if task.queue_name not in self.queues:
            raise InvalidTask(f"Queue {task.queue_name!r} is not in QUEUES of {self.alias!r}: add it there.")

    def enqueue(self, task: Task, args: Iterable[Any], kwargs: dict[str, Any]) -> TaskResult:
        """Send a task, by the present transaction or at once, and return its result, which is not there yet.

        Raises InvalidTask, and ValueError for a number among the arguments that the worker would not get as it is.
        """
        self.validate_task(task)
        args = list(args)
        _check_numbers("args", args, task)
        _check_numbers("kwargs", kwargs, task)
        result = TaskResult(
            task=task,
            id=secrets.token_hex(16),
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        self._send(result)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return what became of a task. Raises TaskResultDoesNotExist; NotImplementedError without ``results``."""
        if not self.supports_get_result:
            raise NotImplementedError(
                f"the task backend {self.alias!r} keeps no results: give it OPTIONS {{'results': True}}, and run "
                "manage.py migrate"
            )
        from rmqclient.frameworks.django.task_records import found

        return found(self.alias, self.settings.alias, result_id)

    def check(self, **_kwargs: Any) -> list[Any]:
        """Return what is wrong with the settings of this backend, for ``manage.py check``."""
        problems = []
        if not apps.is_installed("rmqclient.frameworks.django"):
            problems.append(("no worker takes the tasks", "add 'rmqclient.frameworks.django' to INSTALLED_APPS"))
        if not self.queues:
            problems.append((f"TASKS[{self.alias!r}] has no QUEUES", "name them: each is a topic that workers take"))
        try:
            self.handlers()
        except (HandlerError, InvalidName) as error:
            problems.append((f"TASKS[{self.alias!r}]: {error}", "correct QUEUES or OPTIONS"))
        if self.settings.way == "outbox" and given("OUTBOX") != self.settings.alias:
            problems.append(
                (
                    f"TASKS[{self.alias!r}] sends by the outbox of {self.settings.alias!r}, which no worker reads",
                    f'set RMQ["OUTBOX"] = {self.settings.alias!r}',
                )
            )
        return [checks.Error(problem, hint=hint, id="rmq.E003") for problem, hint in problems]

    def _send(self, result: TaskResult) -> None:
        message = Message(self.topic_of(result.task.queue_name), _body(result), keys=[result.id])
        due = result.task.run_after
        if self.settings.results:
            from rmqclient.frameworks.django.task_records import add

            add(self.settings.alias, result)
        is_in_transaction = connections[self.settings.alias].in_atomic_block
        deliver_at = due if due is None or timezone.is_aware(due) else timezone.make_aware(due)
        if not is_in_transaction or self.settings.way == "now":
            app.shared_producer.send(message, deliver_at=deliver_at)
        elif self.settings.way == "commit":
            send_on_commit(message, using=self.settings.alias, deliver_at=deliver_at)
        else:
            from rmqclient.frameworks.django.outboxes import Outbox

            Outbox(self.settings.alias).add(message, deliver_at=deliver_at)


def _check_numbers(where: str, given: Any, task: Task) -> None:
    """Raise ValueError for a number, in what is given to a task or anywhere within, that the message cannot hold."""
    problem = _problem(given)
    if problem:
        raise ValueError(f"{where} of {task.module_path} is {problem}: give it as a string, and read it in the task")
    for key, value in _inner(given):
        _check_numbers(f"{where}[{key!r}]", value, task)


def _problem(given: Any) -> str:
    """Say why JSON cannot hold a number; nothing if it can, or if there is no number."""
    if isinstance(given, float) and not math.isfinite(given):
        return f"{given}, which JSON does not have"
    if isinstance(given, int) and not _LEAST <= given <= _MOST:
        return f"an integer of {given.bit_length() + (given < 0)} bits, more than 64"
    return ""


def _inner(given: Any) -> Iterable[tuple[Any, Any]]:
    """Return what a dictionary or a list holds, with its key or its place."""
    if isinstance(given, dict):
        return given.items()
    return enumerate(given) if isinstance(given, list | tuple) else ()


def _body(result: TaskResult) -> bytes:
    """Return what the worker is told of a task: the path of its function, its arguments, and whose it is."""
    return orjson.dumps(
        {
            "task": result.task.module_path,
            "backend": result.backend,
            "queue_name": result.task.queue_name,
            "id": result.id,
            "args": result.args,
            "kwargs": result.kwargs,
            "enqueued_at": result.enqueued_at,
            "run_after": result.task.run_after,
        }
    )
