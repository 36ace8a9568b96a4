"""Delay levels: what waits, when it is delivered and where to, and how far that was."""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path

import pytest

from rmqclient.store import SCHEDULE_TOPIC, Message, MessageQueue, MessageStore, open_store
from rmqclient.store.kernel._kernel import Appender, delay_ms
from rmqclient.store.runtime.shared_state import schedule_slot_at
from rmqclient.store.settings import config_file
from rmqclient.store.settings.disk import Usage
from rmqclient.store.waiting.schedule import DELAY_LEVELS, queue_of
from tests.support.oracle import reference
from tests.support.stores import QUEUE, SMALL, TOPIC, abandon, after_every_delay, appender_of, waiting


class Clock:
    """A wall clock that a test sets."""

    def __init__(self, store: MessageStore) -> None:
        self.now_ms = time.time_ns() // 1_000_000
        store.schedule.now_ms = lambda: self.now_ms


def delivered(store: MessageStore, queue: MessageQueue = QUEUE) -> list[bytes]:
    """Return what was delivered to a queue, in order."""
    if queue not in store.topics.all_queues():
        return []
    return [store.messages.at(queue, number).body for number in range(store.topics.max_offset(queue))]


def due_ms(store: MessageStore, level: int, number: int = 0) -> int:
    return store.consume_queues[queue_of(level)].entry(number).tags_code


# --- when -----------------------------------------------------------------------------------------


@pytest.mark.guarantee("G18")
@pytest.mark.parametrize("level", DELAY_LEVELS)
def test_a_message_is_delivered_when_its_level_says_so_and_not_before(
    store: MessageStore, appender: Appender, level: int
) -> None:
    clock = Clock(store)
    appender.append(Message(TOPIC, b"later"), delay_level=level)
    due = due_ms(store, level)
    assert due - store.messages.at(queue_of(level), 0).store_timestamp == delay_ms(level)
    for clock.now_ms in (due - delay_ms(level), due - 1, due):
        assert 0 < store.schedule.look() <= 500
        assert delivered(store) == []
    clock.now_ms = due + 1
    store.schedule.look()
    assert delivered(store) == [b"later"]
    store.schedule.look()
    assert delivered(store) == [b"later"]


def test_the_next_look_is_exactly_when_the_next_message_is_due(store: MessageStore, appender: Appender) -> None:
    clock = Clock(store)
    assert store.schedule.look() == 500
    appender.append(Message(TOPIC, b"a"), delay_level=3)
    appender.append(Message(TOPIC, b"b"), delay_level=1)
    clock.now_ms = due_ms(store, 1) - 123
    assert store.schedule.look() == 124


def test_messages_of_a_level_come_in_order_and_those_of_others_do_not_wait_for_them(
    store: MessageStore, appender: Appender
) -> None:
    clock = Clock(store)
    for number in range(6):
        appender.append(Message(TOPIC, b"%d" % number), delay_level=1 if number % 2 else 5)
    clock.now_ms = due_ms(store, 1, 2) + 1
    store.schedule.look()
    assert delivered(store) == [b"1", b"3", b"5"]
    clock.now_ms = due_ms(store, 5, 2) + 1
    store.schedule.look()
    assert delivered(store) == [b"1", b"3", b"5", b"0", b"2", b"4"]


def test_what_was_stored_before_the_clock_was_set_back_counts_as_due(store: MessageStore, appender: Appender) -> None:
    clock = Clock(store)
    appender.append(Message(TOPIC, b"a"), delay_level=5)
    clock.now_ms = due_ms(store, 5) - delay_ms(5) - 999
    store.schedule.look()
    assert delivered(store) == []  # store times themselves do not follow so small a step
    clock.now_ms -= 1
    store.schedule.look()
    assert delivered(store) == [b"a"]


@pytest.mark.guarantee("G18")
def test_the_housekeeper_delivers_within_milliseconds_and_never_early(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        appender = appender_of(store)
        appender.append(Message(TOPIC, b"first"))
        sent_ns = time.monotonic_ns()
        appender.append(Message(TOPIC, b"later"), delay_level=1)
        deadline = time.monotonic() + 30
        while len(delivered(store)) == 1:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert time.monotonic_ns() - sent_ns >= 1_000_000_000
        copy, waited = store.messages.at(QUEUE, 1), store.messages.at(queue_of(1), 0)
        assert copy.store_timestamp > waited.store_timestamp + 1_000


def test_a_large_backlog_is_delivered_in_slices_and_no_level_waits_for_another(
    store: MessageStore, appender: Appender
) -> None:
    store.schedule.now_ms = after_every_delay
    for _ in range(2):
        appender.append_batch([Message(TOPIC, b"many")] * 60, delay_level=1)
    appender.append(Message(TOPIC, b"one"), delay_level=2)
    assert store.schedule.look() == 0
    assert 0 < waiting(store)[1] < 120
    assert waiting(store)[2] == 0
    while any(waiting(store).values()):
        assert store.schedule.look() == 0
    assert sorted(delivered(store)) == [*[b"many"] * 120, b"one"]


# --- what, and where to ---------------------------------------------------------------------------


def test_a_delivered_message_is_what_waited_but_for_its_place(store: MessageStore) -> None:
    store.schedule.now_ms = after_every_delay
    store.topics.create(TOPIC, 3)
    appender = appender_of(store)
    message = Message(TOPIC, b"body", tags="paid", keys=["k"], properties={"a": "1", "ключ": "значение"}, flag=9)
    sent = appender.append(message, "key", delay_level=4)
    store.schedule.look()
    (_, waited), (_, copy) = reference.read_commit_log(store.root)
    assert copy.property_map["__SHARDINGKEY"] == "key"
    assert (copy.topic, copy.queue_id) == (TOPIC, int(waited.property_map["REAL_QID"]))
    kept = ("body", "flag", "sys_flag", "born_timestamp", "born_host", "store_host", "reconsume_times", "properties")
    assert [getattr(copy, name) for name in kept] == [getattr(waited, name) for name in kept]
    assert copy.store_timestamp >= waited.store_timestamp
    found = store.messages.at(MessageQueue(TOPIC, copy.queue_id), 0)
    assert (found.message_id, found.tags, found.keys) == (sent.message_id, "paid", ("k",))


def test_a_message_is_found_by_its_id_while_it_waits_and_then_where_it_was_delivered_to(store: MessageStore) -> None:
    store.schedule.now_ms = after_every_delay
    sent = appender_of(store).append(Message("orders", b"body", keys=["k"]), delay_level=1)
    for topic in (SCHEDULE_TOPIC, "orders"):
        found = store.messages.by_id(sent.message_id)
        assert found is not None
        assert found.topic == topic
        assert [message.body for message in store.messages.by_key(topic, "k")] == [b"body"]
        store.schedule.look()


def test_a_lost_queue_is_made_again_and_what_is_for_no_queue_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "broker"
    wanted = ["lost", "RMQ_SYS_TRANS_HALF_TOPIC", "../outside", SCHEDULE_TOPIC, "%RETRY%lost"]
    write_waiting(root, wanted)
    with open_store(root, housekeeping=False) as store, caplog.at_level(logging.ERROR):
        store.schedule.now_ms = after_every_delay
        store.schedule.look()
        assert store.schedule.next_offset(1) == len(wanted)
        for topic in ("lost", "%RETRY%lost"):
            assert delivered(store, MessageQueue(topic, 5)) == [b"body"]
        topics = store.topics.topics()
    assert topics == ["%RETRY%lost", SCHEDULE_TOPIC, "lost"]
    assert len([line for line in caplog.messages if "stepped over" in line]) == 3
    assert reference.check_store(root) == []


def write_waiting(root: Path, topics: list[str]) -> None:
    """Write the log of a broker in which a message waits in level 1 for queue 5 of each topic."""
    log = b""
    for number, topic in enumerate(topics):
        text = f"REAL_TOPIC\x01{topic}\x02DELAY\x011\x02TAGS\x01t\x02REAL_QID\x015"
        waiting_record = reference.ReferenceRecord(
            topic=SCHEDULE_TOPIC,
            body=b"body",
            properties=text.encode(),
            queue_offset=number,
            commit_log_offset=len(log),
            store_timestamp=time.time_ns() // 1_000_000 - 5_000,
        )
        log += reference.encode(waiting_record, crc_property=False)
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(log.ljust(SMALL.commit_log_file_bytes, b"\0"))
    (root / "abort").touch()


def test_properties_without_room_for_the_crc_lose_what_only_the_level_needed(tmp_path: Path) -> None:
    root = tmp_path / "broker"
    large = "x" * (32_767 - len("REAL_TOPIC.t.DELAY.1.REAL_QID.5.a."))
    text = f"REAL_TOPIC\x01t\x02DELAY\x011\x02REAL_QID\x015\x02a\x01{large}"
    record = reference.ReferenceRecord(
        topic=SCHEDULE_TOPIC, body=b"body", properties=text.encode(), store_timestamp=time.time_ns() // 1_000_000
    )
    log = reference.encode(record, crc_property=False)
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(log.ljust(1 << 20, b"\0"))
    with open_store(root, housekeeping=False) as store:
        store.schedule.now_ms = after_every_delay
        store.schedule.look()
        assert store.messages.at(MessageQueue("t", 5), 0).properties == {"a": large}


def test_a_damaged_message_is_reported_and_the_next_ones_are_delivered(
    store: MessageStore, appender: Appender, caplog: pytest.LogCaptureFixture
) -> None:
    store.schedule.now_ms = after_every_delay
    places = [appender.append(Message(TOPIC, b"%d" % number), delay_level=1) for number in range(3)]
    with (store.root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(places[1].commit_log_offset + 90)
        file.write(b"damage")
    with caplog.at_level(logging.ERROR):
        store.schedule.look()
    assert delivered(store) == [b"0", b"2"]
    assert f"message 1 of delay level 1, at {places[1].commit_log_offset}" in caplog.text


# --- trouble --------------------------------------------------------------------------------------


def test_on_a_full_disk_messages_wait_longer(
    store: MessageStore, appender: Appender, caplog: pytest.LogCaptureFixture
) -> None:
    store.schedule.now_ms = after_every_delay
    appender.append(Message(TOPIC, b"a"), delay_level=1)
    usual = store.disk.usage
    store.disk.usage = lambda: Usage(99.0, 0)  # type: ignore[method-assign]
    store.disk.look()
    with caplog.at_level(logging.ERROR):
        store.schedule.look()
    assert delivered(store) == []
    assert "delay level 1 waits" in caplog.text
    store.disk.usage = usual  # type: ignore[method-assign]
    store.disk.look()
    store.schedule.pumps[1].resume()
    store.schedule.look()
    assert delivered(store) == [b"a"]


def test_whoever_comes_second_delivers_nothing_again(store: MessageStore, appender: Appender) -> None:
    appender.append(Message(TOPIC, b"a"), delay_level=1)
    message = store.messages.at(queue_of(1), 0)
    assert appender.deliver(message, TOPIC, 0, schedule_slot_at(0)) is not None
    assert appender.deliver(message, TOPIC, 0, schedule_slot_at(0)) is None
    assert delivered(store) == [b"a"]


def test_two_processes_worth_of_looks_at_once_deliver_each_message_once(
    store: MessageStore, appender: Appender
) -> None:
    appender.append_batch([Message(TOPIC, b"%d" % number) for number in range(50)], delay_level=1)
    with open_store(store.root, housekeeping=False) as other:
        store.schedule.now_ms = other.schedule.now_ms = after_every_delay
        started = threading.Barrier(2)

        def look(looking: MessageStore) -> None:
            started.wait()
            while any(waiting(looking).values()):
                looking.schedule.look()

        threads = [threading.Thread(target=look, args=(looking,)) for looking in (store, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert delivered(store) == [b"%d" % number for number in range(50)]


def test_what_retention_has_removed_is_stepped_over_with_a_word(
    store: MessageStore, appender: Appender, caplog: pytest.LogCaptureFixture
) -> None:
    store.schedule.now_ms = after_every_delay
    for number in range(70):
        appender.append(Message(TOPIC, b"%d" % number * 500), delay_level=18)
    store.flusher.flush_thorough()
    store.disk.usage = lambda: Usage(88.0, 1 << 40)  # type: ignore[method-assign]
    while store.retention.clean():
        pass
    low = store.topics.min_offset(queue_of(18))
    assert low > 0
    with caplog.at_level(logging.WARNING):
        while any(waiting(store).values()):
            store.schedule.look()
    assert len(delivered(store)) == 70 - low
    assert f"{low} messages were removed before they were due" in caplog.text


# --- how far --------------------------------------------------------------------------------------


def test_progress_is_written_as_rocketmq_reads_it(store: MessageStore, appender: Appender) -> None:
    store.schedule.now_ms = after_every_delay
    for level in (1, 18, 18):
        appender.append(Message(TOPIC, b"a"), delay_level=level)
    store.schedule.persist()
    assert not (store.root / config_file.DELAY_OFFSETS_FILE).exists()
    store.schedule.look()
    store.schedule.persist()
    text = (store.root / config_file.DELAY_OFFSETS_FILE).read_bytes()
    assert text == b'{\n\t"offsetTable":{\n\t\t"1":1,\n\t\t"18":2\n\t}\n}'
    assert json.loads(text) == {"offsetTable": {"1": 1, "18": 2}}
    assert store.state.flushed_to == store.state.published_to  # or a power cut could lose what it calls delivered


def test_a_brokers_file_is_read_and_what_is_not_ours_is_kept(tmp_path: Path) -> None:
    path = tmp_path / config_file.DELAY_OFFSETS_FILE
    path.parent.mkdir()
    path.write_bytes(b'{\n\t"offsetTable":{3:7,20:4\n\t},\n\t"dataVersion":{"counter":3}\n}')
    assert config_file.read_delay_offsets(tmp_path) == {3: 7, 20: 4}
    config_file.write_delay_offsets(tmp_path, {3: 8})
    assert config_file.read_delay_offsets(tmp_path) == {3: 8, 20: 4}
    assert json.loads(path.read_bytes())["dataVersion"] == {"counter": 3}


@pytest.mark.parametrize("same_boot", [True, False])
@pytest.mark.parametrize("written", [0, 2, 99])
def test_an_offset_outside_of_its_queue_is_moved_into_it(
    store: MessageStore, appender: Appender, same_boot: bool, written: int
) -> None:
    for number in range(4):
        appender.append(Message(TOPIC, b"%d" % number), delay_level=18)
    abandon(store)
    (store.root / "config").mkdir(exist_ok=True)
    config_file.write_delay_offsets(store.root, {18: written, 7: 3})
    if not same_boot:
        (store.root / "shared").unlink()
    with open_store(store.root, housekeeping=False) as again:
        assert again.schedule.next_offset(18) == min(written, 4)
        assert again.schedule.next_offset(7) == 0
        assert config_file.read_delay_offsets(store.root) == {18: min(written, 4), 7: 0}


@pytest.mark.guarantee("G18")
def test_pending_messages_of_a_closed_store_are_delivered_after_it_is_opened(
    store: MessageStore, appender: Appender
) -> None:
    appender.append(Message(TOPIC, b"a"), delay_level=18)
    store.close()
    with open_store(store.root, housekeeping=False) as again:
        again.schedule.now_ms = after_every_delay
        again.schedule.look()
        assert delivered(again) == [b"a"]
    with open_store(store.root, housekeeping=False) as again:
        again.schedule.now_ms = after_every_delay
        again.schedule.look()
        assert delivered(again) == [b"a"]
