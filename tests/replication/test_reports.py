"""What a replica reports is what it has: whole records, on its disk; and what a primary makes of reports."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.errors import LogsDiffer, NotFlushed
from rmqclient.replication.frames import FrameReader, ReportReader, frame, report
from rmqclient.replication.handshake import MAGIC, MAGIC_BYTES
from rmqclient.replication.primary import Primary
from rmqclient.replication.receiving import Ack
from rmqclient.store import MessageStore, open_store
from rmqclient.store.append.replica_log import ReplicaLog
from tests.replication.pairs import feed, fill, following, log_bytes, open_replica, until
from tests.support.stores import SMALL


class Scripted:
    """A primary that sends what a test says, and the reports that it gets."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()
        self._reader = ReportReader()
        self._reports: list[int] = []

    def accept(self) -> socket.socket:
        """Return the next connection of a replica that takes this for a stock primary."""
        self._listening.settimeout(60)
        while True:
            connection, _ = self._listening.accept()
            connection.settimeout(60)
            if connection.recv(8, socket.MSG_PEEK | socket.MSG_WAITALL) != MAGIC_BYTES:
                break
            connection.recv(8)
            connection.sendall(frame(MAGIC, b""))  # as stock ones do, after 5 s
            connection.close()
        self._reader, self._reports = ReportReader(), []
        return connection

    def report(self, connection: socket.socket) -> int:
        """Return the next report."""
        while not self._reports:
            data = connection.recv(4096)
            assert data, "the replica hung up"
            self._reports += self._reader.feed(data)
        return self._reports.pop(0)

    def close(self) -> None:
        """Listen no more."""
        self._listening.close()


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    """A primary in the hands of the test."""
    found = Scripted()
    yield found
    found.close()


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with messages in three files."""
    with open_store(tmp_path / "primary", SMALL, housekeeping=False) as opened:
        fill(opened, 150)
        yield opened


@pytest.mark.guarantee("G74")
def test_a_report_comes_after_the_flush_and_covers_whole_records_only(
    primary: MessageStore, scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a replica whose disk fails to flush three times
    first = primary.messages.at(primary.topics.queues("orders")[0], 0).size
    failures = 0
    with open_replica(tmp_path / "replica") as replica:
        flush = replica.flusher.wait_until_flushed

        def flush_later(end: int) -> None:
            nonlocal failures
            if end and failures < 3:
                failures += 1
                raise NotFlushed("the disk is slow")
            flush(end)

        monkeypatch.setattr(replica.flusher, "wait_until_flushed", flush_later)
        with following(replica, scripted.address, ack=Ack.DISK), scripted.accept() as connection:
            assert scripted.report(connection) == 0

            # When a record and a half come
            connection.sendall(frame(0, log_bytes(primary, 0, first + first // 2)))

            # Then the whole one is reported, and not before it is on the disk
            assert scripted.report(connection) == first
            assert failures == 3
            assert replica.state.flushed_to == first


@pytest.mark.guarantee("G73")
def test_nothing_is_reported_as_had_before_the_last_record_was_compared(
    primary: MessageStore, scripted: Scripted, tmp_path: Path
) -> None:
    content = log_bytes(primary)
    with open_replica(tmp_path / "replica") as replica:
        log = ReplicaLog(replica)
        feed(log, content, 9_000)
        last = log.last_record()
        with following(replica, scripted.address), scripted.accept() as connection:
            # When the replica connects, it asks for its last record once more
            assert scripted.report(connection) == last
            connection.sendall(frame(last, content[last : last + 40]))
            connection.sendall(frame(last + 40, content[last + 40 :]))

            # Then it reports all that it has only when all of it was the same
            assert scripted.report(connection) == len(content)

        with pytest.raises(LogsDiffer, match=f"byte {last + 50}"):  # noqa: SIM117 - the follower ends first
            with following(replica, scripted.address) as follower, scripted.accept() as connection:
                assert scripted.report(connection) == last
                other = bytearray(content[last:])
                other[50] ^= 1
                connection.sendall(frame(last, bytes(other)))
                until(follower._ended.is_set, "the follower gives up")
        assert log_bytes(replica) == content


@pytest.mark.guarantee("G71")
def test_a_primary_sends_from_the_reported_byte_on_in_frames_that_cross_no_file(primary: MessageStore) -> None:
    content = log_bytes(primary)
    with Primary(primary, "127.0.0.1", 0) as listening:
        address = listening.start()
        for begin in (0, 777, len(content) - 5):
            with socket.create_connection(address, 60) as connection:
                connection.sendall(report(begin))
                reader, received, at = FrameReader(), b"", begin
                while at < len(content):
                    for offset, part, _ in reader.feed(connection.recv(1 << 16)):
                        assert offset == at
                        assert not part or (offset + len(part) - 1) // SMALL.commit_log_file_bytes == (
                            offset // SMALL.commit_log_file_bytes
                        )
                        received, at = received + part, at + len(part)
                assert received == content[begin:]
                connection.sendall(report(at))
                until(lambda: len(content) in listening.replicas().values(), "the report has arrived")
            until(lambda: not listening.replicas(), "the primary knows that the replica has gone")


def test_a_primary_hangs_up_on_who_reports_more_than_there_is(primary: MessageStore) -> None:
    with Primary(primary, "127.0.0.1", 0) as listening:
        with socket.create_connection(listening.start(), 60) as connection:
            connection.sendall(report(10**12))
            assert connection.recv(1) == b""
        assert 10**12 not in listening.replicas().values()
