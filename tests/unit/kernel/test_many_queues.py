"""What the kernel keeps for each message queue, when there are many and their names differ in a few bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient.store import STOPPED, Collector, Columns, Message, StoreConfig, open_store
from rmqclient.store.kernel._kernel import Dispatcher, Mapping

TOPICS = [("a" * size)[:-1] + last for size in range(1, 128) for last in "xy"]
"""Of every length, and in pairs that differ in the last byte."""


def collector() -> Collector:
    return Collector(Columns(("topic", "offset"), rows=10_000, size=1 << 20))


def test_each_wanted_queue_has_its_own_progress() -> None:
    # Given two queues of each topic, each with a progress of its own
    wanted = [(topic.encode(), queue_id, 7 * queue_id, 100) for topic in TOPICS for queue_id in (0, 1)]
    collecting = collector()
    collecting.want(wanted)
    assert [collecting.next_of(number) for number in range(len(wanted))] == [start for _, _, start, _ in wanted]

    # When one of them moves on
    collecting.go_on(301, 50)

    # Then no other one does
    assert [number for number in range(len(wanted)) if collecting.next_of(number) == 50] == [301]


@pytest.mark.parametrize("topic", [b"", b"a" * 128])
def test_a_topic_that_cannot_be_is_not_wanted(topic: bytes) -> None:
    with pytest.raises(ValueError, match="a topic 1 to 127"):
        collector().want([(topic, 0, 0, 1)])


def test_messages_of_many_queues_are_told_apart(tmp_path: Path) -> None:
    # Given a log with a message in both queues of each topic, in turns
    config = StoreConfig(commit_log_file_bytes=1 << 20, max_body_bytes=1_000)
    with open_store(tmp_path, config, housekeeping=False) as store:
        appender = store.appenders.make(
            lambda topic: store.topics.create(topic, 2), lambda body: bytes(str(body), "utf-8")
        )
        results = [appender.append(Message(topic, b"body")) for topic in TOPICS * 2]
        end = results[-1].commit_log_end
        content = (tmp_path / "commitlog" / ("0" * 20)).read_bytes()

    # When recovery looks at it, and a reader who wants every other topic
    entries = bytearray(20 * config.consume_queue_file_entries)
    (tmp_path / "entries").write_bytes(entries)
    with (tmp_path / "entries").open("r+b") as file:
        mapping = Mapping(file.fileno(), len(entries))
    dispatcher = Dispatcher(lambda *_: (mapping, 0), config.consume_queue_file_entries)
    assert dispatcher.dispatch(content, 0, 0, end) == end
    ends = dispatcher.ends
    collecting = collector()
    collecting.want([(topic.encode(), queue_id, 0, 10) for topic in TOPICS[::2] for queue_id in (0, 1)])
    stopped = collecting.add_log(content, 0, len(content), 0, end)

    # Then each queue has its end, and each wanted message is a row
    assert ends == {(queue.topic, queue.queue_id): 1 for queue in (result.queue for result in results)}
    assert len(ends) == 2 * len(TOPICS) == dispatcher.records
    assert stopped == (end, STOPPED["END"], -1, -1)
    assert collecting.columns.rows == len(TOPICS)
