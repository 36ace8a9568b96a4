"""Frames of the HA protocol, as masters and slaves of RocketMQ put them on the wire."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from rmqclient.errors import FrameError
from rmqclient.replication.frames import Frame, FrameReader, ReportReader, frame, report
from rmqclient.store import StoreConfig
from rmqclient.store.append.replica_log import ReplicaLog
from tests.replication.pairs import feed, log_bytes, open_replica
from tests.support.oracle import reference

RECORDED = Path(__file__).parent / "recorded"
OF_THE_RECORDINGS = StoreConfig(
    commit_log_file_bytes=65_536, max_body_bytes=30_000, consume_queue_file_entries=1_000, index_slots=16
)


def recorded(name: str) -> bytes:
    return zlib.decompress((RECORDED / name).read_bytes())


@pytest.mark.parametrize("piece", [1, 11, 12, 13, 4_096, 1 << 20])
def test_frames_are_the_same_however_the_wire_has_cut_them(piece: int) -> None:
    stream = frame(0, b"") + frame(0, b"abc") + frame(3, b"d" * 5_000) + frame(5_003, b"")
    reader, found = FrameReader(), list[Frame]()
    for at in range(0, len(stream), piece):
        found += reader.feed(stream[at : at + piece])
    assert [frame[:2] for frame in found] == [(0, b""), (0, b"abc"), (3, b"d" * 5_000), (5_003, b"")]


def test_reports_are_big_endian_numbers_back_to_back() -> None:
    reader = ReportReader()
    assert report(662_569) == bytes.fromhex("00000000000a1c29")
    assert reader.feed(report(0) + report(26_290)[:5]) == [0]
    assert reader.feed(report(26_290)[5:]) == [26_290]


@pytest.mark.parametrize("size", [-1, (4 << 20) - 11])
def test_a_length_that_no_primary_sends_is_refused_before_its_bytes_come(size: int) -> None:
    header = (7).to_bytes(8, "big") + size.to_bytes(4, "big", signed=True)
    with pytest.raises(FrameError, match=str(size)):
        list(FrameReader().feed(header))


@pytest.mark.guarantee("G71")
@pytest.mark.parametrize(
    ("name", "begin", "piece"),
    [("from-4.9.7-master.z", 327_680, 32_768), ("from-5.3.3-master.z", 0, 700)],
)
def test_the_log_that_a_real_master_sent_is_the_log_of_the_replica(
    tmp_path: Path, name: str, begin: int, piece: int
) -> None:
    # Given what a master sent
    frames = list(FrameReader().feed(recorded(name)))
    sent = b"".join(each.content for each in frames)
    assert (frames[0].offset, frames[-1].offset + len(frames[-1].content)) == (begin, begin + len(sent))

    # When a replica takes it, cut otherwise
    with open_replica(tmp_path / "replica", OF_THE_RECORDINGS) as replica:
        log = ReplicaLog(replica)
        if begin:
            log.begin_at(begin)
        feed(log, sent, piece)

        # Then its log is the same to the last byte, and every message can be read
        assert log.end == begin + len(sent)
        assert log_bytes(replica, begin) == sent
        topics = replica.topics
        read = [
            replica.messages.at(q, n)
            for q in topics.all_queues()
            for n in range(topics.min_offset(q), topics.max_offset(q))
        ]
        assert len(read) > 100
        assert {message.commit_log_offset for message in read} >= {log.last_record()}
    assert reference.check_store(tmp_path / "replica") == []
