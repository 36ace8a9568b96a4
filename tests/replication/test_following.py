"""A store follows another one: byte by byte, through restarts and lost connections, and takes nothing else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient import Producer, PullConsumer
from rmqclient.backend.group_protocols import Move, Terms
from rmqclient.errors import LogsDiffer, ReadOnlyReplica, RecordsDamaged, StoreBusy, StoreInUse, StoreUnusable
from rmqclient.filters import MessageFilter
from rmqclient.local.backend import local_backend
from rmqclient.remoting.bodies import DataVersion, TopicTable
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.errors import FrameError
from rmqclient.remoting.frame import Frame, encode
from rmqclient.remoting.table import response
from rmqclient.replication.follower import Follower
from rmqclient.replication.primary import Primary
from rmqclient.replication.primary_client.broker_client import BrokerClient
from rmqclient.replication.receiving import Ack
from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.append.replica_log import ReplicaLog
from rmqclient.store.recovery.replica import become_replica, promote
from rmqclient.store.settings.replica_mark import ReplicaMark, remove_mark, write_mark
from tests.replication.pairs import NO_BROKER, feed, fill, following, log_bytes, open_replica, until
from tests.support.cluster.raw_peer import raw_peer, requests_of
from tests.support.cluster.scripted_cluster import scripted_cluster
from tests.support.oracle import reference
from tests.support.stores import GROUP, QUEUE, SMALL, SPAN, TOPIC, appender_of, body_of, grant_of


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with 150 messages in several files."""
    with open_store(tmp_path / "primary", SMALL, housekeeping=False) as opened:
        fill(opened, 150)
        yield opened


@pytest.fixture
def address(primary: MessageStore) -> Iterator[tuple[str, int]]:
    """Where the primary sends its log."""
    with Primary(primary, "127.0.0.1", 0) as listening:
        yield listening.start()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the replica lies."""
    return tmp_path / "replica"


def is_level(replica: MessageStore, primary: MessageStore) -> bool:
    return replica.state.published_to == primary.state.published_to


@pytest.mark.guarantee("G71")
def test_a_replica_has_every_byte_of_the_log_and_goes_on_where_it_was(
    primary: MessageStore, address: tuple[str, int], root: Path
) -> None:
    # When an empty store follows, while messages come
    with open_replica(root) as replica, following(replica, address):
        fill(primary, 100, first=150)
        until(lambda: is_level(replica, primary), "the replica has all")
        assert log_bytes(replica) == log_bytes(primary)

    # And again, after messages came while it was away
    fill(primary, 100, first=250)
    with open_replica(root) as replica, following(replica, address, ack=Ack.DISK):
        until(lambda: is_level(replica, primary), "the replica has caught up")

        # Then the logs are the same, and so are the queues
        assert log_bytes(replica) == log_bytes(primary)
        assert [replica.messages.at(QUEUE, number).body for number in range(350)] == [
            body_of(number, 400) for number in range(350)
        ]
    assert reference.check_store(root) == []


@pytest.mark.guarantee("G71")
def test_a_reader_at_the_replica_is_woken_by_a_message_that_the_primary_got(
    primary: MessageStore, address: tuple[str, int], root: Path
) -> None:
    with open_replica(root) as replica, following(replica, address), PullConsumer(replica, group="reports") as reader:
        until(lambda: is_level(replica, primary), "the replica has all")
        timer = threading.Timer(0.2, lambda: fill(primary, 1, first=150))
        timer.start()
        found = reader.pull(QUEUE, 150, wait=30)
        timer.join()
    assert [message.body for message in found.messages] == [body_of(150, 400)]


@pytest.mark.guarantee("G72")
def test_a_replica_takes_no_message_topic_or_offset_but_those_of_its_primary(primary: MessageStore, root: Path) -> None:
    become_replica(root, SMALL, ReplicaMark("db7:10912", "db7:10911", 1))
    for _ in range(2):  # the second time by another life of the store
        with open_store(root, SMALL) as replica:
            if not replica.state.published_to:
                feed(ReplicaLog(replica), log_bytes(primary), 10_000)
            backend = local_backend(replica)
            with Producer(replica) as producer, pytest.raises(ReadOnlyReplica, match="db7:10912"):
                producer.send(TOPIC, b"mine")
            with pytest.raises(ReadOnlyReplica, match="db7:10912"):
                appender_of(replica).append(Message(TOPIC, b"mine"))
            with pytest.raises(ReadOnlyReplica, match="db7:10911"):
                replica.topics.create("another", 1)
            with pytest.raises(ReadOnlyReplica):
                backend.groups.memberships().join("billing", TOPIC, "me", Terms("*", MessageFilter()))
            with pytest.raises(ReadOnlyReplica):
                backend.groups.seek(Move({("billing", QUEUE): 3}))
            with pytest.raises(ReadOnlyReplica):
                backend.groups.commit("billing", QUEUE, 3)
            assert log_bytes(replica) == log_bytes(primary)


@pytest.mark.guarantee("G72")
def test_a_store_with_messages_of_its_own_becomes_no_replica(tmp_path: Path) -> None:
    mark = ReplicaMark(NO_BROKER, NO_BROKER, 1)
    with open_store(tmp_path, SMALL) as store:
        fill(store, 1)
        with pytest.raises(StoreInUse):
            become_replica(tmp_path, SMALL, mark)
    with pytest.raises(StoreUnusable, match="messages of its own"):
        become_replica(tmp_path, SMALL, mark)
    with open_store(tmp_path, SMALL) as store:
        fill(store, 1)  # it is what it was


def test_one_process_follows_for_a_replica(root: Path, address: tuple[str, int]) -> None:
    with (
        open_replica(root) as replica,
        following(replica, address),
        open_store(root, SMALL) as another,
        pytest.raises(StoreBusy, match="follows"),
    ):
        Follower(another, NO_BROKER, NO_BROKER)


@pytest.mark.guarantee("G73")
def test_logs_that_went_two_ways_are_not_mixed_even_when_all_sizes_are_equal(
    primary: MessageStore, address: tuple[str, int], root: Path
) -> None:
    # Given a replica with messages that the primary lost, and a primary that has got others of the same size
    with open_replica(root) as replica:
        feed(ReplicaLog(replica), log_bytes(primary), 5_000)
    remove_mark(root)  # not a promotion, which epochs would show
    with open_store(root, SMALL, housekeeping=False) as other_way:
        fill(other_way, 10, first=500)
        before = log_bytes(other_way)
    fill(primary, 20, first=700)
    write_mark(root, ReplicaMark(NO_BROKER, NO_BROKER, 1))

    # When it follows, it says so and has changed nothing
    with open_replica(root) as replica:
        with pytest.raises(LogsDiffer, match="differ at byte"), following(replica, address) as follower:
            until(follower._ended.is_set, "the follower gives up")
        assert log_bytes(replica) == before


@pytest.mark.guarantee("G73")
def test_damage_on_the_wire_is_found_before_it_is_stored(primary: MessageStore, root: Path) -> None:
    content = log_bytes(primary)
    with open_replica(root) as replica:
        log = ReplicaLog(replica)
        for at in range(30, len(content), len(content) // 200):
            damaged = bytearray(content[log.end : at + 4_000])
            if at < log.end or not damaged:
                continue
            damaged[at - log.end] ^= 1 << at % 8
            try:
                feed(log, bytes(damaged), len(damaged))
            except RecordsDamaged as error:
                assert error.position <= at
            assert log_bytes(replica) == content[: log.end], f"byte {at}"
        feed(log, content[log.end :], 7_000)
        assert log_bytes(replica) == content


@pytest.mark.guarantee("G73")
def test_a_replica_whose_files_have_another_size_is_refused_at_the_end_of_the_first_file(
    primary: MessageStore, root: Path
) -> None:
    config = replace(SMALL, commit_log_file_bytes=2 * SMALL.commit_log_file_bytes)
    with open_replica(root, config) as replica, pytest.raises(RecordsDamaged, match="36864"):
        feed(ReplicaLog(replica), log_bytes(primary), 10_000)


def test_a_promoted_replica_is_a_store_of_its_own(primary: MessageStore, root: Path) -> None:
    with open_replica(root) as replica:
        feed(ReplicaLog(replica), log_bytes(primary), 10_000)
        with pytest.raises(StoreInUse):
            promote(root)
    promote(root)
    with open_store(root, SMALL) as store:
        fill(store, 10, first=150)
        grant = grant_of(store, GROUP)
        assert [message.body for message in grant.take(200, SPAN)][-1] == body_of(159, 400)
    assert reference.check_store(root) == []


def test_a_broker_of_rocketmq_that_has_just_begun_is_asked_again_how_its_log_is() -> None:
    # Given a broker that fails at its figures until it has counted for a second
    sizes = "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=200\nmaxHashSlotNum=8\nmaxIndexNum=32\n"
    failures = [1, 1]

    def figures(asked: Frame) -> Frame:
        if failures:
            return response(asked, failures.pop(), remark="java.util.NoSuchElementException")
        return response(asked, 0, b'{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"162"}}')

    script = {
        RequestCode.GET_BROKER_CONFIG: lambda asked: response(asked, 0, sizes.encode(), version="1"),
        RequestCode.GET_BROKER_RUNTIME_INFO: figures,
    }
    with scripted_cluster(script) as cluster, BrokerClient(cluster.address) as broker:
        shape = broker.log_shape()
    assert (shape.begin, shape.end, shape.settings.consume_queue_file_entries) == (0, 162, 10)


def test_a_damaged_answer_of_a_broker_costs_no_later_one() -> None:
    # Given a broker whose first answer is damaged, on a connection that stays open
    damaged = [b"HTTP/1.1 503 Service Unavailable\r\n\r\n"]
    topics = TopicTable(DataVersion(1, 1), {})

    def serve(accepted: socket.socket) -> None:
        for asked in requests_of(accepted):
            accepted.sendall(damaged.pop() if damaged else encode(response(asked, 0, topics.encode())))

    with raw_peer(serve) as peer, BrokerClient(peer.address) as broker:
        with pytest.raises(FrameError):
            broker.topics()
        assert broker.topics() == topics
