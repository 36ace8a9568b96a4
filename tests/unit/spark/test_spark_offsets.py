"""Where a Spark read begins and ends, and how much one micro-batch takes, as Spark's Kafka source has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from rmqclient.arrow.ranges import Offsets, Ranges
from rmqclient.errors import DataLost, UnknownTopic
from rmqclient.spark.files.store_files import StorePlace
from rmqclient.spark.scan import offsets
from rmqclient.spark.scan.offsets import between, in_proportion, kept, limited
from rmqclient.spark.scan.place import Place
from rmqclient.spark.scan.queue_json import from_json, to_json
from rmqclient.spark.scan.read_options import ReadOptions, Selection, parse
from rmqclient.store import Message, MessageQueue, open_store
from rmqclient.store.inspect.view import LocalView
from tests.support.oracle import reference
from tests.support.written import SMALL, fill, forget_oldest, written_store

ORDERS, PAYMENTS_0, PAYMENTS_1 = MessageQueue("orders", 0), MessageQueue("payments", 0), MessageQueue("payments", 1)
WHOLE = {ORDERS: range(120), PAYMENTS_0: range(30), PAYMENTS_1: range(30)}

QUEUES = [MessageQueue("orders", number) for number in range(4)]
STARTS = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 200))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_store(tmp_path_factory.mktemp("offsets") / "store")


@pytest.fixture(scope="module")
def place(root: Path) -> StorePlace:
    return StorePlace(LocalView(root))


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> StorePlace:
    """A store of which retention has removed the oldest messages."""
    root = tmp_path_factory.mktemp("passed") / "store"
    with open_store(root, SMALL, housekeeping=False) as store:
        fill(store)
        forget_oldest(store)
    return StorePlace(LocalView(root))


def options(streaming: bool, given: dict[str, object]) -> ReadOptions:
    usual: dict[str, object] = {"path": "store", "subscribePattern": ".*"}
    if {"subscribe", "assign"} & set(given):
        del usual["subscribePattern"]
    texts = {name: json.dumps(value) if isinstance(value, dict) else str(value) for name, value in given.items()}
    return parse({name: str(value) for name, value in usual.items()} | texts, streaming=streaming)


def read(place: Place, **given: object) -> Ranges:
    """Return what a batch reads with these options."""
    chosen = options(False, given)
    there = offsets.available(place, chosen.selection)
    return between(offsets.starting(place, there, chosen), offsets.ending(place, there, chosen))


# --- which queues ---------------------------------------------------------------------------------


def test_queues_are_named_matched_or_assigned(place: Place) -> None:
    assert read(place) == WHOLE
    assert set(read(place, subscribe="orders")) == {ORDERS}
    assert set(read(place, subscribe="payments,orders")) == set(WHOLE)
    assert set(read(place, assign={"payments": [1]})) == {PAYMENTS_1}


def test_a_pattern_is_for_whole_names(place: Place) -> None:
    chosen = Selection(pattern="order|payments")
    assert offsets.selected(place, chosen) == [PAYMENTS_0, PAYMENTS_1]


def test_what_is_not_there_is_named_with_what_is(place: Place) -> None:
    with pytest.raises(UnknownTopic, match=r"subscribe: nothing was ever sent to nope, x; topics there: orders, pay"):
        read(place, subscribe="nope,orders,x")
    with pytest.raises(UnknownTopic, match=r"assign: queue 7 of orders: the store has no such queue"):
        read(place, assign={"orders": [0, 7]})


def test_a_stream_waits_for_what_is_not_there_yet(place: Place) -> None:
    missing: list[dict[str, object]] = [{"subscribe": "nope,orders"}, {"assign": {"orders": [0, 7]}}]
    for given_ in missing:
        found = offsets.available(place, options(True, given_).selection, may_come=True)
        assert found == {ORDERS: range(120)}


def test_topics_of_the_store_itself_are_read_by_their_full_names_alone(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", SMALL, housekeeping=False) as store:
        appender = store.appenders.make(
            lambda topic: store.topics.create(topic, 1), lambda body: bytes(str(body), "utf-8")
        )
        topics = ["%RETRY%g", "%DLQ%g", "plain"]
        for topic in topics:
            appender.append(Message(topic, b"x"))
        appender.append_half(Message("plain", b"undecided"), "g")
        appender.append(Message("plain", b"later"), delay_level=18)
        topics += ["RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"]
        opened = StorePlace(LocalView(store.root))
        assert {queue.topic for queue in read(opened)} == {"%RETRY%g", "%DLQ%g", "plain"}
        assert {queue.topic for queue in read(opened, subscribe=",".join(topics))} == set(topics)
        assert [queue.topic for queue in offsets.selected(opened, Selection(pattern="SCHEDULE.*|pl"))] == []


# --- from where to where --------------------------------------------------------------------------


def test_offsets_are_the_next_to_read_and_ends_are_not_read(place: Place) -> None:
    start, end = {"orders": {"0": 7}}, {"orders": {"0": 9}}
    assert read(place, subscribe="orders", startingOffsets=start, endingOffsets=end) == {ORDERS: range(7, 9)}
    assert read(place, subscribe="orders", startingOffsets=end, endingOffsets=start) == {}
    assert read(place, subscribe="orders", startingOffsets={"orders": {"0": 120}}) == {}


def test_minus_two_is_the_earliest_and_minus_one_the_latest(place: Place, passed: Place) -> None:
    start = {"orders": {"0": -2}, "payments": {"0": 4, "1": 30}}
    end = {"orders": {"0": 5}, "payments": {"0": -1, "1": -1}}
    assert read(place, startingOffsets=start, endingOffsets=end) == {ORDERS: range(5), PAYMENTS_0: range(4, 30)}
    oldest = read(passed)[ORDERS].start
    assert oldest > 0
    assert read(passed, subscribe="orders", startingOffsets={"orders": {"0": -2}})[ORDERS].start == oldest
    streaming = options(True, {"subscribe": "orders", "startingOffsets": {"orders": {"0": -1}}})
    assert offsets.starting(place, {ORDERS: range(120)}, streaming) == {ORDERS: 120}


def test_offsets_name_each_queue_that_is_read(place: Place) -> None:
    with pytest.raises(ValueError, match=r"startingOffsets does not name queue 1 of payments: give an offset, -2 for"):
        read(place, subscribe="payments", startingOffsets={"payments": {"0": 1}})
    with pytest.raises(ValueError, match=r"endingOffsets names queue 0 of orders, which is not selected"):
        read(place, subscribe="payments", endingOffsets={"payments": {"0": 1, "1": 1}, "orders": {"0": 1}})


def test_an_offset_that_is_not_there_is_data_loss_or_the_nearest_one(place: Place, passed: Place) -> None:
    far, first = {"orders": {"0": 121}}, {"orders": {"0": 0}}
    with pytest.raises(DataLost, match=r"endingOffsets: queue 0 of orders has the offsets 0 to 120, not 121\. .*false"):
        read(place, subscribe="orders", endingOffsets=far)
    with pytest.raises(DataLost, match=r"startingOffsets: queue 0 of orders has the offsets [1-9]\d* to 120, not 0"):
        read(passed, subscribe="orders", startingOffsets=first)
    assert read(place, subscribe="orders", endingOffsets=far, failOnDataLoss="false") == {ORDERS: range(120)}
    found = read(passed, subscribe="orders", startingOffsets=first, failOnDataLoss="false")
    assert found == {ORDERS: passed.ranges([ORDERS])[ORDERS]}


def times_of(root: Path) -> list[int]:
    return [
        record.store_timestamp
        for _, record in reference.read_commit_log(root)
        if (record.topic, record.queue_id) == ("orders", 0)
    ]


def test_a_time_is_the_first_message_stored_then_or_later(place: Place, root: Path) -> None:
    times = times_of(root)
    for when in (0, times[0], times[60], times[-1]):
        expected = next(number for number, stored in enumerate(times) if stored >= when)
        assert read(place, subscribe="orders", startingTimestamp=when)[ORDERS].start == expected
        by_queue = {"orders": {"0": when}}
        assert read(place, subscribe="orders", startingOffsetsByTimestamp=by_queue)[ORDERS].start == expected
        ended = read(place, subscribe="orders", endingTimestamp=when).get(ORDERS, range(0))
        assert ended == range(expected) == read(
            place, subscribe="orders", endingOffsetsByTimestamp=by_queue
        ).get(ORDERS, range(0))  # fmt: skip


def test_a_time_behind_all_messages_is_an_error_at_the_start_and_the_end_at_the_end(place: Place, root: Path) -> None:
    late = times_of(root)[-1] + 1
    with pytest.raises(ValueError, match=r"queue 0 of orders: no message was stored at the given start time .*=latest"):
        read(place, subscribe="orders", startingTimestamp=late)
    assert read(place, subscribe="orders", startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == {}
    assert read(place, subscribe="orders", endingTimestamp=late) == {ORDERS: range(120)}


def test_the_time_for_all_goes_before_times_by_queue_and_those_before_offsets(place: Place, root: Path) -> None:
    late = times_of(root)[-1] + 1
    by_queue = {"orders": {"0": late}}
    usual: dict[str, object] = {"subscribe": "orders", "startingOffsetsByTimestampStrategy": "latest"}
    assert read(place, **usual, startingTimestamp=1, startingOffsetsByTimestamp=by_queue) == {ORDERS: range(120)}
    assert read(place, **usual, startingOffsetsByTimestamp=by_queue, startingOffsets="earliest") == {}
    assert read(
        place, subscribe="orders", endingTimestamp=late, endingOffsetsByTimestamp={"orders": {"0": 0}}
    ) == {ORDERS: range(120)}  # fmt: skip


def test_times_by_queue_name_each_queue_that_is_read(place: Place) -> None:
    with pytest.raises(ValueError, match=r"startingOffsetsByTimestamp does not name queue 1 of payments: give a time"):
        read(place, subscribe="payments", startingOffsetsByTimestamp={"payments": {"0": 1}})
    with pytest.raises(ValueError, match=r"endingOffsetsByTimestamp names queue 0 of orders, which is not selected"):
        read(place, assign={"payments": [0]}, endingOffsetsByTimestamp={"payments": {"0": 1}, "orders": {"0": 1}})


# --- what is still there --------------------------------------------------------------------------


def test_messages_removed_before_they_were_read_are_data_loss(passed: Place) -> None:
    there = passed.ranges([ORDERS])[ORDERS]
    start, end = {ORDERS: there.start - 5}, {ORDERS: there.stop}
    with pytest.raises(
        DataLost,
        match=rf"messages {there.start - 5} to {there.start - 1} of queue 0 .* oldest message is {there.start}\.",
    ):
        kept(passed, start, end, fail_on_data_loss=True)
    assert kept(passed, start, end, fail_on_data_loss=False) == {ORDERS: there}
    # Also those of a queue that came later and was never looked at
    with pytest.raises(DataLost, match=rf"messages 0 to {there.start - 1} of queue 0 of orders were removed"):
        kept(passed, {}, end, fail_on_data_loss=True)
    assert kept(passed, {}, end, fail_on_data_loss=False) == {ORDERS: there}


def test_a_store_that_ends_below_what_was_read_is_data_loss(place: Place) -> None:
    with pytest.raises(DataLost, match=r"messages 120 to 122 of queue 0 of orders .*the store ends at 120"):
        kept(place, {ORDERS: 119}, {ORDERS: 123}, fail_on_data_loss=True)
    assert kept(place, {ORDERS: 119}, {ORDERS: 123}, fail_on_data_loss=False) == {ORDERS: range(119, 120)}
    assert kept(place, {ORDERS: 121}, {ORDERS: 123}, fail_on_data_loss=False) == {}


def test_offsets_of_a_checkpoint_come_back_as_they_were() -> None:
    given_ = {PAYMENTS_1: 3, ORDERS: 0, MessageQueue("orders", 10): 7}
    assert to_json(given_) == {"orders": {"0": 0, "10": 7}, "payments": {"1": 3}}
    assert from_json(json.loads(json.dumps(to_json(given_)))) == given_


# --- how much at once -----------------------------------------------------------------------------


@st.composite
def starts_and_ends(draw: st.DrawFn) -> tuple[Offsets, Offsets]:
    start = draw(STARTS)
    new = draw(STARTS)
    grown = {queue: offset + draw(st.integers(0, 100)) for queue, offset in start.items()}
    return start, new | grown


def taken(start: Offsets, end: Offsets) -> int:
    return offsets.count(between(start, end).values())


@given(starts_and_ends(), st.integers(1, 500))
def test_a_batch_takes_no_more_than_asked_in_proportion_and_always_something(
    given_: tuple[Offsets, Offsets], most: int
) -> None:
    start, latest = given_
    end = in_proportion(start, latest, most)
    waiting = taken(start, latest)
    assert set(end) == set(latest)
    assert taken(start, end) == min(most, waiting)
    for queue, stop in latest.items():
        low, share = start.get(queue, 0), end[queue] - start.get(queue, 0)
        assert low <= end[queue] <= stop
        exact = (stop - low) * min(1, most / waiting) if waiting else 0
        assert abs(share - exact) < 1 + 1e-6, "in proportion, but for one message"


@given(starts_and_ends(), st.integers(1, 500))
def test_a_micro_batch_has_something_of_each_queue_that_waits(given_: tuple[Offsets, Offsets], most: int) -> None:
    start, latest = given_
    end = limited(start, latest, most)
    assert set(end) == set(latest)
    assert taken(start, end) == min(most, taken(start, latest))
    assert all(start.get(queue, 0) <= end[queue] <= stop for queue, stop in latest.items())
    waiting = between(start, latest)
    assert len(between(start, end)) >= min(most, len(waiting))


@pytest.mark.guarantee("G96")
@pytest.mark.parametrize(("quiet", "most"), [(2, 1_000), (40, 7)])
def test_a_busy_queue_does_not_let_quiet_ones_wait(quiet: int, most: int) -> None:
    # Given a queue whose backlog grows as fast as it is read, and quiet ones with five messages each
    busy = MessageQueue("clicks", 0)
    alarms = [MessageQueue("alarms", number) for number in range(quiet)]
    start: Offsets = {busy: 0} | dict.fromkeys(alarms, 0)
    latest: Offsets = {busy: 1_000_000} | dict.fromkeys(alarms, 5)
    # When it is read in batches, then all alarms are read before each queue has had its turn a few times
    batches = 0
    while any(start[queue] < 5 for queue in alarms):
        start, batches = limited(start, latest, most), batches + 1
        latest[busy] += most
    assert batches <= 8 * -(-(quiet + 1) // most) + 8


@given(starts_and_ends(), st.integers(1, 50))
def test_batches_one_after_the_other_take_everything_once(given_: tuple[Offsets, Offsets], most: int) -> None:
    start, latest = given_
    position, batches = dict(start), 0
    while left := taken(position, latest):
        end = limited(position, latest, most)
        assert taken(position, end) == min(most, left)
        position, batches = end, batches + 1
    assert position == latest or not batches
    assert batches == -(-taken(start, latest) // most)
