"""``rmq serve --ha-listen`` and ``rmq replica``: two processes, killed and started again, and a promotion."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmqclient import Message, Producer, PullConsumer
from rmqclient.replication.status import read_seen, write_seen
from rmqclient.store import MessageQueue, StoreConfig, clock, open_store
from rmqclient.store.settings import config_file
from rmqclient.workers.cli import rmq
from rmqclient.workers.exit_codes import ExitCode
from tests.replication.pairs import Process, follow, log_bytes, serve, until
from tests.support.oracle import reference

TINY = dataclasses.replace(StoreConfig.small(), commit_log_file_bytes=1_200_000)
QUEUE = MessageQueue("orders", 0)


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[Process]:
    """A server over a store with messages, a delayed message that was delivered, one that waits, and a group."""
    root = tmp_path / "primary"
    with open_store(root, TINY) as store:
        store.topics.create("empty", 7)
        store.topics.create("orders", 1)
        with Producer(store) as producer, PullConsumer(store, group="billing") as consumer:
            for number in range(300):
                producer.send("orders", b"%d;" % number * 1_500)
            producer.send("orders", b"later", delay_level=18)
            producer.send("orders", b"soon", delay_level=1)
            consumer.commit(QUEUE, 123)
            until(lambda: consumer.max_offset(QUEUE) == 301, "the delayed message is delivered")
    with serve(root) as process:
        yield process


def told(*arguments: str) -> tuple[int, Any, str]:
    """Run a command; return its exit code, what it printed as JSON, and its complaint."""
    result = CliRunner().invoke(rmq, [*arguments, "-o", "json"], prog_name="rmq")
    return result.exit_code, json.loads(result.stdout) if result.stdout else None, result.stderr


def end_of(root: Path) -> int:
    """Return the end of a replica's log, as a command shows it."""
    code, shown, _ = told("replica", "status", "--store", str(root))
    return int(shown[0]["end"]) if code == 0 else -1


@pytest.mark.guarantee("G71")
@pytest.mark.guarantee("G75")
def test_a_replica_has_messages_topics_groups_and_delays_and_takes_over(primary: Process, tmp_path: Path) -> None:
    source, copy = tmp_path / "primary", tmp_path / "replica"
    with open_store(source, housekeeping=False) as store:
        # Given a follower that is killed, and a primary that goes on
        with follow(copy, primary):
            until(lambda: end_of(copy) == store.state.published_to, "the replica has all")
        with Producer(store) as producer:
            for number in range(300, 400):
                producer.send("orders", b"%d;" % number * 1_500)

        # When another follower goes on
        with follow(copy, primary) as follower:
            until(lambda: end_of(copy) == store.state.published_to, "the replica has caught up")
            until(lambda: offsets_of(copy), "groups and delay levels have come")

            # Then the replica has the same bytes, topics, groups and delay levels
            with open_store(copy, housekeeping=False) as replica:
                assert log_bytes(replica) == log_bytes(store)
                assert len(replica.topics.queues("empty")) == 7
                assert replica.config.commit_log_file_bytes == TINY.commit_log_file_bytes

            # And it is not promoted while its primary is heard
            assert follower.stop() == 0
        seen = read_seen(copy)
        write_seen(copy, dataclasses.replace(seen, contact_ms=clock.wall_ms() + 60_000))  # however slow this machine is
        code, _, complaint = told("replica", "promote", "--store", str(copy))
        assert (code, "was heard" in complaint) == (ExitCode.STORE_CANNOT_BE_OPENED, True)

    # When the primary is lost, and the replica is promoted
    primary.kill()
    code, shown, complaint = told("replica", "promote", "--force", "--store", str(copy))
    assert (code, complaint) == (0, "")
    assert shown[0]["missing_bytes"] == 0

    # Then it goes on as the primary would: nothing is delivered again, and nothing is lost
    with Producer(copy) as producer, PullConsumer(copy, group="billing") as consumer:
        assert producer.send(Message("orders", b"after")).queue_offset == 401
        assert consumer.committed_offset(QUEUE) == 123
        bodies = [m.body for m in consumer.messages("orders", wait=0)]
        assert [body.partition(b";")[0] for body in bodies] == [
            *(b"%d" % number for number in range(300)),
            b"soon",
            *(b"%d" % number for number in range(300, 400)),
            b"after",
        ]
    assert reference.check_store(copy) == []


@pytest.mark.guarantee("G75")
def test_what_was_removed_at_the_primary_stays_removed_at_its_replica_and_after_a_promotion(
    primary: Process, tmp_path: Path
) -> None:
    # Given a replica with all messages of a topic
    copy = tmp_path / "replica"
    with (
        open_store(tmp_path / "primary", housekeeping=False) as store,
        Producer(store) as producer,
        follow(copy, primary),
    ):
        until(lambda: end_of(copy) == store.state.published_to, "the replica has all")

        # When the topic is removed at the primary, and made again by two messages
        producer.send("other", b"before")
        store.topics.remove("orders")
        store.topics.remove("other")
        producer.send("orders", b"new")
        with open_store(copy, housekeeping=False) as replica:
            until(lambda: replica.topics.min_offset(QUEUE) == 301, "the removal has come")
            until(lambda: "other" not in replica.topics.configs(), "the other one is no topic")
        until(lambda: end_of(copy) == store.state.published_to, "the replica has the new message, too")
    primary.kill()
    assert told("replica", "promote", "--force", "--store", str(copy))[0] == 0

    # Then the promoted replica has the new message, and none of the removed ones
    with PullConsumer(copy, group="late") as consumer:
        assert [message.body for message in consumer.messages("orders", wait=0)] == [b"new"]
    with open_store(copy, housekeeping=False) as promoted:
        assert "other" not in promoted.topics.configs()


def offsets_of(root: Path) -> bool:
    """Tell whether groups and delay levels of the primary have come, and stand where they do there."""
    with open_store(root, housekeeping=False) as replica:
        known = replica.groups.find("billing", replica.topics.slot(QUEUE))
        has_group = known is not None and known.committed_offset == 123
        return has_group and config_file.read_delay_offsets(root).get(1) == 1
