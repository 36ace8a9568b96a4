"""Sends that wait for replicas: answered when as many have the message as are asked for, refused or noted without."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

import pytest

from rmqclient import Producer
from rmqclient.errors import NotReplicated, ReplicaUnavailable
from rmqclient.message import SendResult
from rmqclient.remoting.codes import ResponseCode
from rmqclient.replication.acks.followers import acknowledged
from rmqclient.replication.frames import FrameReader, report
from rmqclient.replication.primary import Primary
from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.settings.replication import OnLost, Replication, Sync, read_replication
from tests.broker.asking import asking
from tests.broker.sending.sends import send_of
from tests.replication.pairs import fill, following, log_bytes, open_replica, until
from tests.support.stores import SMALL, TOPIC, after_every_delay, appender_of

PATIENT = Replication(Sync.MEMORY, timeout_ms=30_000)
HASTY = Replication(Sync.MEMORY, timeout_ms=200)


class Replica:
    """A replica in the hands of a test: it reports what the test says, from an address of its own."""

    def __init__(self, address: tuple[str, int], host: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection(address, 60, source_address=(host, 0))
        self._reader = FrameReader()
        self.has = 0

    def join(self, end: int) -> None:
        """Say that it has everything up to ``end``, and that again, as any replica does sooner or later."""
        self._socket.sendall(report(end) + report(end))

    def receive(self, end: int) -> None:
        """Take what comes, up to ``end`` of the log, and report nothing."""
        while self.has < end:
            for offset, content, _ in self._reader.feed(self._socket.recv(1 << 16)):
                self.has = max(self.has, offset + len(content))

    def report(self, end: int) -> None:
        """Say how far it is."""
        self._socket.sendall(report(end))

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with some messages."""
    with open_store(tmp_path / "primary", SMALL, housekeeping=False) as opened:
        fill(opened, 5)
        yield opened


@pytest.fixture
def other(store: MessageStore) -> Iterator[MessageStore]:
    """The same store, as another process has it open."""
    with open_store(store.root, SMALL, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def begin(store: MessageStore) -> Iterator[Callable[[Replication], tuple[str, int]]]:
    """Let the store send its log, and its sends wait as it is told."""
    running: list[Primary] = []

    def start(settings: Replication) -> tuple[str, int]:
        running.append(Primary(store, "127.0.0.1", 0, settings))
        return running[-1].start()

    yield start
    for each in running:
        each.close()


@pytest.fixture
def sending() -> Iterator[Callable[[Producer], Future[SendResult]]]:
    """Send from a thread of its own."""
    with ThreadPoolExecutor(4) as pool:
        yield lambda producer: pool.submit(producer.send, TOPIC, b"message")


Begin = Callable[[Replication], tuple[str, int]]
Sending = Callable[[Producer], "Future[SendResult]"]


@pytest.mark.guarantee("G76")
def test_a_send_of_any_process_returns_when_a_replica_has_reported_its_message(
    store: MessageStore, other: MessageStore, begin: Begin, sending: Sending
) -> None:
    with Replica(begin(PATIENT)) as replica, Producer(other) as producer:
        replica.join(store.state.published_to)
        until(lambda: other.replicas.are_in_sync, "the replica is in sync")
        for _ in range(3):
            before = store.state.published_to
            sent = sending(producer)
            until(lambda before=before: store.state.published_to > before, "the message is stored")  # type: ignore[misc]
            end = store.state.published_to

            # When the replica has it and says nothing, or less
            replica.receive(end)
            replica.report(end - 1)
            until(lambda end=end: store.state.replicated_to == end - 1, "the report has come")  # type: ignore[misc]
            assert not sent.done()

            # Then only its report ends the send
            replica.report(end)
            assert sent.result(60).replicated is True


@pytest.mark.guarantee("G76")
def test_every_kind_of_send_waits_and_a_send_that_is_not_waited_for_does_not(
    store: MessageStore, begin: Begin, tmp_path: Path
) -> None:
    address = begin(PATIENT)
    with open_replica(tmp_path / "replica") as replica, following(replica, address), Producer(store) as producer:
        until(lambda: store.replicas.are_in_sync, "the replica is in sync")
        message = Message(TOPIC, b"one")
        results = [
            producer.send(message),
            *producer.send_batch([message, message]),
            producer.send_once(message, "key"),
            producer.send_once(message, "key"),
            producer.send_async(message).result(60),
            asyncio.run(_awaited(producer, message)),
            producer.send(message, delay_level=1),
        ]
        assert [each.replicated for each in results] == [True] * 8
        assert results[4].is_duplicate
        assert replica.state.published_to == store.state.published_to
        assert log_bytes(replica) == log_bytes(store)
    # and a store that waits for nobody says so
    with open_store(tmp_path / "alone", SMALL) as alone, Producer(alone) as producer:
        assert producer.send(TOPIC, b"one").replicated is None
        assert "replicated" not in repr(producer.send(TOPIC, b"one"))


async def _awaited(producer: Producer, message: Message) -> SendResult:
    return await producer.send_async(message)


@pytest.mark.guarantee("G76")
def test_of_several_replicas_the_slowest_that_is_needed_counts(
    store: MessageStore, begin: Begin, sending: Sending
) -> None:
    address = begin(Replication(Sync.MEMORY, followers=2, timeout_ms=30_000))
    with (
        Replica(address) as earlier,  # of the quick one: it speaks for the same replica, which counts once
        Replica(address) as quick,
        Replica(address, "127.0.0.2") as slow,
        Producer(store) as producer,
    ):
        for each in (earlier, quick, slow):
            each.join(store.state.published_to)
        until(lambda: store.replicas.are_in_sync, "both replicas are in sync")
        before = store.state.published_to
        sent = sending(producer)
        until(lambda: store.state.published_to > before, "the message is stored")
        for each in (earlier, quick, slow):
            each.receive(store.state.published_to)
        for each in (earlier, quick):
            each.report(store.state.published_to)
        slow.report(before)
        with pytest.raises(TimeoutError):
            sent.result(0.2)
        slow.report(store.state.published_to)
        assert sent.result(60).replicated is True


def test_what_replicas_have_is_by_their_newest_words_and_by_the_disk_if_that_is_asked() -> None:
    class Told:
        def __init__(self, identity: str, reported: int | None, acked: int | None, is_flushed: bool = False) -> None:
            self.identity, self.reported, self.acked, self.is_flushed = identity, reported, acked, is_flushed

    one = Replication(Sync.MEMORY)
    two = Replication(Sync.MEMORY, followers=2)
    assert acknowledged([], one) is None
    assert acknowledged([Told("a", 5, None)], one) is None
    assert acknowledged([Told("a", 9, 9), Told("b", 5, 5)], one) == 9
    assert acknowledged([Told("a", 9, 9), Told("b", 5, 5), Told("c", 7, 7)], two) == 7
    assert acknowledged([Told("a", 9, 9), Told("a", 3, 3)], one) == 3
    assert acknowledged([Told("a", 9, 9), Told("a", 3, None)], one) is None
    assert acknowledged([Told("a", 9, 9), Told("a", None, None)], one) == 9
    assert acknowledged([Told("a", 9, 9), Told("b", 5, 5, is_flushed=True)], Replication(Sync.DISK)) == 5


@pytest.mark.guarantee("G77")
def test_without_a_replica_in_sync_a_send_is_refused_before_anything_is_written(
    store: MessageStore, other: MessageStore, begin: Begin
) -> None:
    address = begin(HASTY)
    before = log_bytes(store)
    with Producer(other) as producer:
        with pytest.raises(ReplicaUnavailable):
            producer.send(TOPIC, b"message")
        with pytest.raises(ReplicaUnavailable):
            producer.send_async(Message(TOPIC, b"message"))

        # A number that anybody can send makes no replica, and a replica that is behind is not in sync
        probe = socket.create_connection(address, 60)
        probe.sendall(report(store.state.published_to))
        behind = Replica(address, "127.0.0.2")
        behind.join(1)
        behind.receive(store.state.published_to)
        with pytest.raises(ReplicaUnavailable):
            producer.send(TOPIC, b"message")
        assert log_bytes(store) == before

        # When it has caught up, and then hangs
        behind.report(store.state.published_to)
        until(lambda: other.replicas.are_in_sync, "the replica is in sync")
        with pytest.raises(NotReplicated, match="stored here"):
            producer.send(TOPIC, b"message")
        until(lambda: not other.replicas.are_in_sync, "the replica is not in sync any more")
        with pytest.raises(ReplicaUnavailable):
            producer.send(TOPIC, b"message")
    assert read_replication(store.root).missing_from is not None
    probe.close()
    behind.close()


@pytest.mark.guarantee("G77")
def test_a_store_refuses_also_when_it_is_opened_again_and_nobody_sends_its_log(
    store: MessageStore, begin: Begin
) -> None:
    begin(HASTY)
    root = store.root
    store.close()
    with open_store(root, SMALL) as again, Producer(again) as producer:
        with pytest.raises(ReplicaUnavailable):
            producer.send(TOPIC, b"message")

        # What the store appends by itself is not refused, because it is in no sender's way
        again.log_sending.configure(Replication())
        producer.send(TOPIC, b"later", delay_level=1)
        again.log_sending.configure(HASTY)
        count = again.topics.max_offset(again.topics.queues(TOPIC)[0])
        again.schedule.now_ms = after_every_delay
        until(lambda: again.topics.max_offset(again.topics.queues(TOPIC)[0]) > count, "the message is delivered")


@pytest.mark.guarantee("G78")
def test_what_is_answered_without_replicas_is_written_down_before_and_until_they_have_it(
    store: MessageStore, other: MessageStore, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = begin(Replication(Sync.MEMORY, OnLost.DEGRADE, timeout_ms=6_000))
    with Producer(other) as producer:
        assert read_replication(store.root).missing_from is None
        assert producer.send(TOPIC, b"message").replicated is False
        noted = read_replication(store.root)
        assert noted.missing_from is not None
        assert noted.missing_since_ms is not None

        # When a replica has come and has everything
        with open_replica(tmp_path / "replica") as replica, following(replica, address):
            until(lambda: read_replication(store.root).missing_from is None, "the replica has everything")
            assert replica.state.published_to == store.state.published_to
            assert producer.send(TOPIC, b"message").replicated is True
            assert read_replication(store.root).missing_from is None
            had = store.state.published_to

        # Then the next one is noted again; one that cannot be noted is not answered
        until(lambda: not store.replicas.are_in_sync, "the replica has gone")
        monkeypatch.setattr("rmqclient.store.append.replicas.write_replication", _full)
        with pytest.raises(NotReplicated, match=r"cannot be written down.*full") as raised:
            producer.send(TOPIC, b"message")
        assert (raised.value.stored, raised.value.retryable) == (True, False)
        monkeypatch.undo()
        assert producer.send(TOPIC, b"message").replicated is False
        assert read_replication(store.root).missing_from == had


def _full(*_: object) -> None:
    raise OSError("the disk is full")


@pytest.mark.guarantee("G79")
def test_stock_clients_read_in_the_code_of_an_answer_what_became_of_the_copies(tmp_path: Path) -> None:
    def answers(on_lost: OnLost, timeout_ms: int = 300) -> Iterator[int]:
        with asking(tmp_path / on_lost.value, SMALL) as client:
            store = client.broker.store
            store.topics.create(TOPIC, 2)
            with Primary(store, "127.0.0.1", 0, Replication(Sync.MEMORY, on_lost, timeout_ms=timeout_ms)) as primary:
                address = primary.start()
                yield client.ask_frame(send_of()).code
                replica = Replica(address)
                replica.join(store.state.published_to)
                until(lambda: store.replicas.are_in_sync, "the replica is in sync")
                yield client.ask_frame(send_of()).code
                replica.receive(store.state.published_to)
                until(lambda: not store.replicas.are_in_sync, "the replica is behind")
                replica.report(store.state.published_to)
                until(lambda: store.replicas.are_in_sync, "the replica is in sync again")
                reporting = threading.Thread(target=_report_next, args=(replica, store.state.published_to))
                reporting.start()
                yield client.ask_frame(send_of()).code
                reporting.join()
                replica.close()

    absent, late, done = ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SUCCESS
    assert list(answers(OnLost.DEGRADE)) == [absent, late, done]
    assert list(answers(OnLost.REFUSE)) == [ResponseCode.SERVICE_NOT_AVAILABLE, late, done]


def _report_next(replica: Replica, end: int) -> None:
    replica.receive(end + 1)
    replica.report(replica.has)


@pytest.mark.guarantee("G77")
def test_a_replica_that_has_gone_counts_no_more_whatever_it_had(store: MessageStore, begin: Begin) -> None:
    with Replica(begin(PATIENT)) as replica:
        replica.join(store.state.published_to)
        until(lambda: store.replicas.are_in_sync, "the replica is in sync")
        assert store.state.replicated_to == store.state.published_to
    until(lambda: not store.replicas.are_in_sync, "nobody follows")
    with pytest.raises(ReplicaUnavailable):
        appender_of(store).append(Message(TOPIC, b"message"))
