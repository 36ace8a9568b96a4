"""The command ``rmq`` on real brokers: what only a cluster shows, and what it cannot do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from rmqclient import Message, TransactionProducer
from rmqclient.failures.failure import Failure
from rmqclient.failures.retry import Retries, RetryPolicy
from rmqclient.opening import open_backend
from tests.interop.cluster.clusters import Cluster
from tests.interop.rocketmq import TOP

Name = Callable[[str], str]
Command = Callable[..., list[dict[str, object]]]

LONG_S = 30.0


@pytest.fixture
def command(cluster: Cluster, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return what runs ``rmq`` on the cluster, with a state directory of this test."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "rmqclient.workers", *arguments],
            cwd=TOP,
            env={**os.environ, "RMQ_STORE": cluster.url, "RMQ_STATE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def rmq(command: Callable[..., subprocess.CompletedProcess[str]]) -> Command:
    """Return what runs ``rmq`` and returns the rows that it prints."""

    def run(*arguments: str) -> list[dict[str, object]]:
        done = command(*arguments, "-o", "jsonl")
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return [orjson.loads(line) for line in done.stdout.splitlines()]

    return run


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, what


def test_a_topic_has_its_queues_on_every_master(rmq: Command, name: Name) -> None:
    topic = name("Made")
    (made,) = rmq("topic", "create", topic, "--queues", "3")
    queues = made["queues"]
    assert isinstance(queues, list)
    assert [(queue["broker"], queue["queue_id"]) for queue in queues] == [
        (broker, number) for broker in ("broker-a", "broker-b") for number in range(3)
    ]


def test_a_group_at_rest_is_moved_to_any_offset(rmq: Command, name: Name) -> None:
    topic, group = name("Moved"), name("g")
    rmq("topic", "create", topic, "--queues", "1")
    rmq("send", topic, "body", "--count", "8")
    moved = rmq("group", "seek", group, topic, "--to", "2")
    assert [(row["broker"], row["from_offset"], row["to_offset"]) for row in moved] == [
        ("broker-a", None, 2),
        ("broker-b", None, 2),
    ]
    assert [(row["broker"], row["lag"]) for row in rmq("group", "lag", group)] == [("broker-a", 2), ("broker-b", 2)]
    assert group in [row["group"] for row in rmq("group", "ls")]


def test_undecided_transactions_are_shown_and_decided(
    cluster: Cluster, rmq: Command, command: Callable[..., subprocess.CompletedProcess[str]], name: Name
) -> None:
    topic = name("Paid")
    rmq("topic", "create", topic, "--queues", "1")
    with TransactionProducer(cluster.url, group=name("payers")) as producer:
        wanted, unwanted = (producer.transaction(Message(topic, body)).message_id for body in (b"yes", b"no"))

    def undecided() -> set[object]:
        return {row["message_id"] for row in rmq("tx", "ls", "--topic", topic)}

    eventually(lambda: undecided() == {wanted, unwanted}, "a broker shows what it has stored")
    rmq("tx", "commit", wanted)
    rmq("tx", "rollback", unwanted)

    def is_over() -> bool:
        if unwanted in undecided():  # a 5.x broker has stored it again before it noted the decision
            again = command("tx", "rollback", unwanted)
            assert again.returncode == 0 or "nothing was decided" in again.stderr  # it is noted by now
        return not undecided()

    eventually(is_over, "both are decided")
    eventually(lambda: bool(rmq("tail", topic, "--from", "earliest", "--no-follow")), "the message is there")
    assert [row["body"] for row in rmq("tail", topic, "--from", "earliest", "--no-follow")] == ["yes"]


def test_dead_letters_of_a_broker_are_shown_and_sent_again_once(cluster: Cluster, rmq: Command, name: Name) -> None:
    topic, group = name("Failed"), name("failing")
    rmq("topic", "create", topic, "--queues", "1")
    rmq("send", topic, "7", "--key", "k")
    backend = open_backend(cluster.url)
    (queue,) = [queue for queue in backend.topics.queues(topic) if backend.queues.span(queue).max_offset]
    failure = Failure.raised(ValueError("no number"), 1, "worker-1")
    Retries(backend, group, RetryPolicy(max_retries=0), "me").send_back(backend.queues.message_at(queue, 0), failure)
    backend.close()
    eventually(lambda: bool(rmq("dlq", "ls", group)), "the letter is there")
    (letter,) = rmq("dlq", "ls", group)
    assert letter["topic"] == topic
    assert len(rmq("dlq", "replay", group)) == 1
    assert rmq("dlq", "replay", group) == []
    eventually(lambda: len(rmq("tail", topic, "--from", "earliest", "--no-follow")) == 2, "it came again")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["schedule", "ls"], "a cluster, whose brokers do not tell messages that wait for a time"),
        (["store", "clean"], "needs a store of this host"),
        (["group", "pause", "TOOLS_CONSUMER"], "never consumed anything"),
    ],
)
def test_what_a_cluster_cannot_do_is_one_line(
    command: Callable[..., subprocess.CompletedProcess[str]], arguments: list[str], reason: str
) -> None:
    done = command(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert reason in line
