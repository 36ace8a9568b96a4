"""Tasks of Django: enqueued by a transaction, run by a worker, retried, waited for, and looked up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from rmqclient import App
from rmqclient.testing import processes
from rmqclient.testing.kit import Kit
from tests.frameworks.django.running import until, why_not

if reason := why_not():
    pytest.skip(reason, allow_module_level=True)


@contextmanager
def heard(signal: Any) -> Iterator[list[Any]]:
    """Collect the results that a signal tells of."""
    results: list[Any] = []

    def hear(task_result: Any, **_more: Any) -> None:
        results.append((task_result.status, task_result.attempts))

    signal.connect(hear)
    yield results
    signal.disconnect(hear)


def relayed(kit: Kit) -> None:
    """Let the relay, which lives while handlers run, send what is in the outbox."""
    from rmqclient.frameworks.django.models import OutboxMessage

    with kit.running():
        until(lambda: not OutboxMessage.objects.exclude(state=2).exists())


def retried(kit: Kit, times: int) -> None:
    for _ in range(times):
        kit.drain(raises=False)
        kit.advance(seconds=1)
    kit.drain(raises=False)


def test_a_task_runs_and_its_result_is_there_for_everybody(kit: Kit) -> None:
    from examples.django_shop.shop.models import Order
    from examples.django_shop.shop.tasks import write_receipt

    order = Order.objects.create(item="pears", count=2)
    result = write_receipt.enqueue(order.pk)
    assert (result.status, write_receipt.get_result(result.id).args) == ("READY", [order.pk])
    kit.drain()
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", "2 x pears", 1)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    order.refresh_from_db()
    assert order.receipt == "2 x pears"


@pytest.mark.guarantee("G69")
def test_a_task_of_a_transaction_that_is_rolled_back_never_was(kit: Kit) -> None:
    from django.db import transaction

    from examples.django_shop.shop.tasks import shout
    from rmqclient.frameworks.django.models import OutboxMessage, TaskRecord

    with suppress(ZeroDivisionError), transaction.atomic():
        shout.enqueue("no")
        assert (OutboxMessage.objects.count(), TaskRecord.objects.count()) == (1, 1)
        raise ZeroDivisionError
    assert (OutboxMessage.objects.count(), TaskRecord.objects.count()) == (0, 0)
    with transaction.atomic():
        result = shout.enqueue("yes")
    relayed(kit)
    kit.drain()
    result.refresh()
    assert result.return_value == "YES"


def test_a_task_that_fails_is_tried_again_and_knows_it(kit: Kit) -> None:
    from examples.django_shop.shop.tasks import fail_at_first
    from rmqclient.frameworks.django.task_api import task_finished, task_started

    with heard(task_started) as started, heard(task_finished) as finished:
        result = fail_at_first.enqueue(2)
        kit.drain(raises=False)
        result.refresh()
        assert (result.status, [each.exception_class for each in result.errors]) == ("READY", [ConnectionError])
        retried(kit, 2)
    result.refresh()
    assert (result.status, result.return_value, result.attempts, len(result.errors)) == ("SUCCESSFUL", 3, 3, 2)
    assert ([attempt for _, attempt in started], finished) == ([1, 2, 3], [("SUCCESSFUL", 3)])


def test_a_task_that_fails_for_good_is_a_dead_letter(kit: Kit) -> None:
    from examples.django_shop.shop.tasks import fail_at_first
    from rmqclient.frameworks.django.task_api import task_finished

    with heard(task_finished) as finished:
        result = fail_at_first.enqueue(99)
        retried(kit, 4)
    result.refresh()
    assert (result.status, len(result.errors), finished) == ("FAILED", 4, [("FAILED", 4)])
    (letter,) = kit.dead_letters("tasks")
    assert result.id in letter.message.keys


def test_a_task_whose_worker_dies_at_every_attempt_has_failed(kit: Kit, shop: App) -> None:
    from django.utils import timezone

    from examples.django_shop.shop.tasks import shout
    from rmqclient.frameworks.django.models import TaskRecord
    from rmqclient.frameworks.django.task_api import task_finished
    from rmqclient.frameworks.django.task_runs import WorkerDied, run_task

    # Given a task that looks as if it ran, because the worker that began it has died
    result = shout.enqueue("x")
    TaskRecord.objects.update(status="RUNNING", last_attempted_at=timezone.now(), worker_ids=["desk-7"])
    with heard(task_finished) as finished:
        # When all others die, too, until the message is a dead letter
        dying = App()
        dying.handlers += [each for each in shop.handlers if each.function is run_task]
        for _ in range(20):
            with suppress(AssertionError):  # nothing to do
                processes.crash(kit.root, [dying], run_task, 0)
            kit.advance(minutes=1)
            if kit.dead_letters("tasks"):
                break
        assert len(kit.dead_letters("tasks")) == 1
        kit.drain(raises=False)
    # Then it has failed
    result.refresh()
    assert (result.status, [each.exception_class for each in result.errors]) == ("FAILED", [WorkerDied])
    assert finished == [("FAILED", 1)]


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_task_waits_for_its_time(kit: Kit, in_transaction: bool) -> None:
    from django.db import transaction

    from examples.django_shop.shop.tasks import shout

    later = shout.using(run_after=kit.now + timedelta(hours=1))
    if in_transaction:
        with transaction.atomic():
            result = later.enqueue("late")
        relayed(kit)
    else:
        result = later.enqueue("late")
    kit.drain()
    result.refresh()
    assert (result.status, result.task.run_after) == ("READY", later.run_after)
    kit.advance(hours=1)
    kit.drain()
    result.refresh()
    assert result.return_value == "LATE"


def test_what_cannot_be_enqueued_is_refused(kit: Kit) -> None:
    from examples.django_shop.shop.tasks import shout
    from rmqclient.frameworks.django.task_api import InvalidTask, TaskResultDoesNotExist

    with pytest.raises(InvalidTask, match="nowhere"):
        shout.using(queue_name="nowhere")
    with pytest.raises(InvalidTask, match="priority"):
        shout.using(priority=5)
    with pytest.raises(TypeError, match="Unsupported type"):
        shout.enqueue(object())
    with pytest.raises(TaskResultDoesNotExist):
        shout.get_result("0" * 32)


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ([float("nan")], {}, r"args\[0\] of examples.django_shop.shop.tasks.shout is nan"),
        ([], {"word": float("-inf")}, r"kwargs\['word'\] of .* is -inf"),
        ([{"sums": [1.5, (2, float("inf"))]}], {}, r"args\[0\]\['sums'\]\[1\]\[1\] of .* is inf"),
        ([2**64], {}, r"args\[0\] of .* is an integer of 65 bits"),
        ([-(2**63) - 1], {}, r"args\[0\] of .* is an integer of 65 bits"),
    ],
)
def test_a_number_that_json_would_change_is_refused_and_nothing_is_written(
    kit: Kit, args: list[Any], kwargs: dict[str, Any], said: str
) -> None:
    from examples.django_shop.shop.tasks import shout
    from rmqclient.frameworks.django.models import TaskRecord
    from rmqclient.frameworks.django.task_api import task_enqueued

    with heard(task_enqueued) as enqueued, pytest.raises(ValueError, match=said):
        shout.enqueue(*args, **kwargs)
    assert (enqueued, TaskRecord.objects.count(), kit.sent("tasks-default")) == ([], 0, [])


def test_the_largest_numbers_that_json_holds_arrive(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.django_shop.shop.tasks import shout

    monkeypatch.setattr(shout.func, "__code__", returned.__code__)
    numbers = [2**64 - 1, -(2**63), 1.7976931348623157e308, True]
    result = shout.enqueue(numbers)
    kit.drain()
    result.refresh()
    assert result.return_value == numbers


async def returned(word: object) -> object:
    """Return what was given."""
    return word


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"OPTIONS": {"thread": 2}}, "use threads"),
        ({"OPTIONS": {"send": "later"}}, "use 'outbox', 'commit' or 'now'"),
        ({"OPTIONS": {"retry": 3}}, "give a policy"),
        ({"OPTIONS": {"threads": 0}}, "a handler has 1 to 1,000 threads"),
        ({"QUEUES": ["mail.high"]}, "replace '.'"),
        ({"QUEUES": []}, "has no QUEUES"),
        ({"OPTIONS": {"database": "other"}}, "which no worker reads"),
    ],
)
def test_wrong_settings_are_told(shop: object, params: dict[str, Any], problem: str) -> None:
    from rmqclient.frameworks.django import RmqBackend

    def told() -> str:
        try:
            return " ".join(f"{each.msg} {each.hint}" for each in RmqBackend("default", params).check())
        except (ValueError, TypeError) as error:
            return str(error)

    assert problem in told()


def test_a_result_that_json_cannot_hold_is_a_failure(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.django_shop.shop.tasks import shout

    monkeypatch.setattr(shout.func, "__code__", unspeakable.__code__)
    result = shout.enqueue("x")
    kit.drain(raises=False)
    result.refresh()
    assert (result.status, [each.exception_class for each in result.errors]) == ("READY", [TypeError])


async def unspeakable(word: str) -> object:
    """Return what JSON cannot hold."""
    return object()


def test_a_backend_without_results_says_so(shop: object) -> None:
    from rmqclient.frameworks.django import RmqBackend

    with pytest.raises(NotImplementedError, match="keeps no results"):
        RmqBackend("default", {}).get_result("1")
