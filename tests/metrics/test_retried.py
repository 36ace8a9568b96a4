"""The attempts that another one follows: a counter that never falls, whatever dies and whenever it is read."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.delivery.acknowledging import Acknowledger
from rmqclient.metrics import GroupTotals, Sampler, Source, by_group
from rmqclient.store import MessageQueue, open_store
from rmqclient.store.runtime.group_table import GroupTable
from tests.metrics.conftest import wait_for

RAISES_AND_THEN_DIES = """
import os, signal, sys
from rmqclient import App, RetryPolicy
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer

app = App(sys.argv[1])

@app.handler("orders", group="billing", order=sys.argv[2] or None, retry=RetryPolicy(max_retries=1))
def bill(message):
    if sys.argv[2] and message.delivery_attempt == 1:
        raise ValueError("not yet")
    os.kill(os.getpid(), signal.SIGKILL)

PushConsumer(sys.argv[1], app.handlers, config=ConsumerConfig(suspend_ms=10)).start()
sys.stdin.read()
"""


def killed_by_its_message(root: Path, order: str) -> None:
    """Run a consumer until its handler has killed it; that of an ordered queue raises at the first attempt."""
    command = [sys.executable, "-c", RAISES_AND_THEN_DIES, str(root), order]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        assert child.wait(60) == -signal.SIGKILL


def consumer_of(root: Path, order: str) -> PushConsumer:
    """Return a consumer of the same group, whose handler must not run."""
    app = App(str(root))

    @app.handler("orders", group="billing", order=order or None, retry=RetryPolicy(max_retries=1))  # type: ignore[arg-type]
    def bill(message: ReceivedMessage) -> None:
        raise AssertionError("the message has ended too many processes")

    return PushConsumer(root, app.handlers, config=ConsumerConfig(suspend_ms=10))


def sent(root: Path) -> None:
    with Producer(root) as producer:
        producer.create_topic("orders", 1)
        producer.send(Message("orders", b"1"), sharding_key="one")


def totals(sampler: Sampler) -> GroupTotals:
    return by_group(sampler.sample())["billing", "orders"]


def retried(root: Path) -> float:
    """Return what a first scrape shows."""
    with Source(root) as source:
        return scraped(source)


def scraped(source: Source) -> float:
    """Return what the next scrape shows."""
    (family,) = (each for each in source.read() if each.metric.name == "rmq_retried_total")
    return sum(point.value for point in family.points if point.labels["topic"] == "orders")


@pytest.mark.parametrize("order", ["queue", "key"])
def test_a_message_that_is_buried_for_its_death_takes_nothing_from_the_retried(root: Path, order: str) -> None:
    # Given an ordered message that was tried again after it failed, and then killed its process
    sent(root)
    killed_by_its_message(root, order)
    assert retried(root) == 1

    # When it becomes a dead letter
    consumer = consumer_of(root, order)
    consumer.start()
    with Sampler(root) as sampler:
        wait_for(lambda: totals(sampler).dead_lettered == 1, "the message is given up")
        consumer.close()

        # Then its last attempt has failed, too, and the one before it still counts as tried again
        assert totals(sampler).failed == 2
    assert retried(root) == 1


def test_a_message_that_is_given_up_for_its_deaths_has_failed_before_it_is_finished(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a message that has killed two processes
    sent(root)
    for _ in range(2):
        killed_by_its_message(root, "")
    failed: list[int] = []
    give_back = Acknowledger.give_back

    # When it becomes a dead letter instead of killing another one
    with Sampler(root) as sampler:

        def watched(self: Acknowledger, *arguments: object, **named: object) -> bool:
            failed.append(totals(sampler).failed)
            return give_back(self, *arguments, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(Acknowledger, "give_back", watched)
        consumer = consumer_of(root, "")
        consumer.start()
        wait_for(lambda: totals(sampler).dead_lettered == 1, "the message is given up")
        consumer.close()

        # Then its failure was counted before, and once
        assert failed == [1]
        assert totals(sampler).failed == 1


def test_a_dead_letter_that_comes_while_a_sample_is_taken_takes_nothing_from_the_retried(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a message that has failed, and was tried again
    sent(root)
    with open_store(root, housekeeping=False) as store:
        slot = store.groups.find_or_add("billing", store.topics.slot(MessageQueue("orders", 0)), 0)
        slot.add("failed", 1)
        assert retried(root) == 1
        column = GroupTable.column

        def moving(self: GroupTable, field: str) -> list[int]:
            found = column(self, field)
            slot.add("failed", 1)
            slot.count_dead_letter(1_000)
            return found

        # When more become dead letters between the reads of any two words
        monkeypatch.setattr(GroupTable, "column", moving)

        # Then no sample shows fewer that were tried again
        assert retried(root) >= 1


def test_a_scrape_between_a_failure_and_its_dead_letter_is_followed_by_none_that_shows_fewer(root: Path) -> None:
    # Given a group one of whose messages was tried again
    sent(root)
    with open_store(root, housekeeping=False) as store, Source(root) as source:
        slot = store.groups.find_or_add("billing", store.topics.slot(MessageQueue("orders", 0)), 0)
        slot.add("failed", 1)
        assert scraped(source) == 1

        # When a scrape comes after the failure of another one, and before that becomes a dead letter
        slot.add("failed", 1)
        between = scraped(source)
        slot.count_dead_letter(1_000)

        # Then no later scrape shows fewer, and attempts that are tried again count on from there
        assert scraped(source) == between == 2
        slot.add("failed", 2)
        assert scraped(source) == 3


def test_the_retried_begin_anew_with_a_store_that_does(root: Path) -> None:
    sent(root)
    with open_store(root, housekeeping=False) as store, Source(root) as source:
        slot = store.groups.find_or_add("billing", store.topics.slot(MessageQueue("orders", 0)), 0)
        slot.add("failed", 3)
        assert scraped(source) == 3
        slot.store("failed", 1)
        assert scraped(source) == 1
