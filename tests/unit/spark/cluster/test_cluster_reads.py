"""A Spark read of a cluster gives the rows that the directory gives, whatever the brokers do meanwhile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from rmqclient.errors import DataLost, UnknownTopic
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import NoPermission
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields, response
from rmqclient.spark.cluster import pulling
from rmqclient.spark.reading.batch_reader import BatchReader
from rmqclient.spark.scan.columns import schema_of
from rmqclient.spark.scan.read_options import ReadOptions, parse
from rmqclient.store import MessageQueue
from tests.support.written import written_store
from tests.unit.arrow.read_rows import Row
from tests.unit.spark.cluster.served import Served, served

SCHEMA = schema_of(properties=True, metadata=True)
ORDERS = MessageQueue("orders", 0, "broker-a")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """180 messages: 120 orders in one queue, 60 payments in two."""
    return written_store(tmp_path_factory.mktemp("served") / "store")


@pytest.fixture
def broker(root: Path) -> Iterator[Served]:
    with served(root) as serving:
        yield serving


def rows_of(options: ReadOptions) -> list[Row]:
    """Return the rows in the order in which the tasks give them, with the order of each queue."""
    reader = BatchReader(options, SCHEMA)
    found = [row for split in reader.partitions() for batch in reader.read(split) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["topic"], row["broker_name"], row["partition"]))


def in_directory(root: Path, **given: str) -> list[Row]:
    options = parse({"path": str(root), "subscribe": "orders,payments", "split": "queue", **given}, streaming=False)
    return [row | {"broker_name": "broker-a"} for row in rows_of(options)]


def offsets(rows: list[Row]) -> list[int]:
    return [row["offset"] for row in rows if row["topic"] == "orders"]


# --- the same rows --------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{}, {"pullsAtOnce": 1}, {"batchRows": 7}, {"minPartitions": 5}], ids=str)
def test_rows_are_those_of_the_directory(broker: Served, root: Path, given: dict[str, object]) -> None:
    assert rows_of(broker.options(**given)) == in_directory(root)


@pytest.mark.parametrize("tags", ["tag1", "tag1 || tag3", "none"])
def test_a_broker_selects_by_tag(broker: Served, root: Path, tags: str) -> None:
    assert rows_of(broker.options(subExpression=tags)) == in_directory(root, subExpression=tags)
    asked = {request_fields(each)["subscription"] for each in broker.cluster.asked(RequestCode.PULL_MESSAGE)}
    assert tags in asked


def test_a_broker_that_sends_other_tags_with_the_same_hash_changes_nothing(broker: Served, root: Path) -> None:
    # A broker compares hashes, so it may send more than was asked for
    def careless(request: Frame) -> Frame:
        request.fields["subscription"] = "*"
        return broker.pull(request)

    broker.cluster.script[RequestCode.PULL_MESSAGE] = careless
    assert rows_of(broker.options(subExpression="tag2")) == in_directory(root, subExpression="tag2")


def test_each_queue_of_each_broker_is_read(root: Path) -> None:
    with served(root, ("broker-a", "broker-b")) as serving:
        found = rows_of(serving.options(subscribe="payments"))
    queues = {(row["broker_name"], row["partition"]) for row in found}
    assert queues == {("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-b", 1)}
    assert len(found) == 120


def test_a_pattern_takes_no_topic_of_the_brokers(broker: Served) -> None:
    assert {row["topic"] for row in rows_of(broker.options(subscribePattern=".*"))} == {"orders", "payments"}


def test_times_are_those_of_the_directory(broker: Served, root: Path) -> None:
    when = in_directory(root)[60]["timestamp"].timestamp()
    given = {"startingTimestamp": str(int(when * 1000)), "startingOffsetsByTimestampStrategy": "latest"}
    assert rows_of(broker.options(**given)) == in_directory(root, **given)


def test_offsets_name_their_broker(broker: Served) -> None:
    given = {
        "assign": '{"orders": {"broker-a": [0]}}',
        "startingOffsets": '{"orders": {"broker-a": {"0": 7}}}',
        "endingOffsets": '{"orders": {"broker-a": {"0": 50}}}',
    }
    assert offsets(rows_of(broker.options(**given))) == list(range(7, 50))


# --- many requests at once ------------------------------------------------------------------------


def chunks_of(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each request ask for so many messages."""
    monkeypatch.setattr(pulling, "_CHUNK", count)
    monkeypatch.setattr(pulling, "_FIRST_CHUNK", count)


def test_answers_that_come_in_another_order_give_the_order_of_the_queue(
    broker: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a broker that answers four requests at once, the last one first
    chunks_of(30, monkeypatch)
    held: list[Frame] = []

    def late(request: Frame) -> Frame | None:
        if is_sample(request):
            return broker.pull(request)
        held.append(request)
        if len(held) == 4:
            for each in reversed(held):
                broker.cluster.answer(broker.pull(each))
        return None

    broker.cluster.script[RequestCode.PULL_MESSAGE] = late
    # Then the rows have the order of the queue
    assert offsets(rows_of(broker.options(subscribe="orders", pullsAtOnce=4))) == list(range(120))


def test_records_that_wait_long_for_those_before_them_stay_as_they_came(
    broker: Served, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a broker that answers the first request after all others, of which one is under way at a time
    chunks_of(4, monkeypatch)
    first: list[Frame] = []

    def late(request: Frame) -> Frame | None:
        offset = request_fields(request)["queueOffset"]
        if not is_sample(request) and offset == 0:
            first.append(request)
            return None
        if offset == 116:
            broker.cluster.answer(broker.pull(first[0]))
        return broker.pull(request)

    broker.cluster.script[RequestCode.PULL_MESSAGE] = late
    # Then each record is the one that was sent, though more was received meanwhile than the buffers hold at a time
    found = rows_of(broker.options(subscribe="orders", pullsAtOnce=2))
    assert found == [row for row in in_directory(root) if row["topic"] == "orders"]


def test_no_more_requests_are_under_way_than_asked_for(broker: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks_of(8, monkeypatch)
    under_way: list[int] = []
    held: list[Frame] = []

    def counted(request: Frame) -> Frame | None:
        if is_sample(request):
            return broker.pull(request)
        held.append(request)
        under_way.append(len(held))
        if len(held) == 3 or request_fields(request)["queueOffset"] >= 96:
            for each in held:
                broker.cluster.answer(broker.pull(each))
            held.clear()
        return None

    broker.cluster.script[RequestCode.PULL_MESSAGE] = counted
    assert offsets(rows_of(broker.options(subscribe="orders", pullsAtOnce=3))) == list(range(120))
    assert max(under_way) == 3


def test_answers_that_nobody_takes_stay_few(broker: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks_of(8, monkeypatch)
    monkeypatch.setattr(pulling, "_BUFFERED_BYTES", 1)
    broker.most = 1
    assert offsets(rows_of(broker.options(subscribe="orders"))) == list(range(120))


def test_a_broker_that_gives_more_at_once_is_asked_for_more(broker: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a broker that gives 20 messages, where 8 are asked for at first
    monkeypatch.setattr(pulling, "_CHUNK", 8)
    monkeypatch.setattr(pulling, "_FIRST_CHUNK", 30)
    broker.most = 20
    assert offsets(rows_of(broker.options(subscribe="orders", pullsAtOnce=1))) == list(range(120))
    # Then the requests after the first ones ask for 20
    asked = [request for request in broker.cluster.asked(RequestCode.PULL_MESSAGE) if not is_sample(request)]
    wanted = [request_fields(request)["maxMsgNums"] for request in asked]
    assert wanted == [30, 10, 20, 20, 20, 20, 10]


def test_a_read_that_ends_early_leaves_the_next_one_alone(broker: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a read that is given up while requests are under way
    chunks_of(8, monkeypatch)
    given = broker.options(subscribe="orders", batchRows=1)
    reader = BatchReader(given, SCHEMA)
    (split,) = reader.partitions()
    begun = iter(reader.read(split))
    next(begun)
    begun.close()  # type: ignore[attr-defined]
    # Then the next one has its own answers
    assert offsets(rows_of(given)) == list(range(120))


# --- bad weather ----------------------------------------------------------------------------------


def test_connections_that_end_are_made_again(broker: Served) -> None:
    def hangs_up(request: Frame) -> Frame:
        count = len(broker.cluster.asked(RequestCode.PULL_MESSAGE))
        if count % 7 == 0 and count < 40:
            broker.cluster.hang_up()
        return broker.pull(request)

    broker.most = 5
    broker.cluster.script[RequestCode.PULL_MESSAGE] = hangs_up
    assert offsets(rows_of(broker.options())) == list(range(120))


@pytest.mark.parametrize("others", ["answered", "unanswered"])
def test_a_request_without_an_answer_is_asked_again(
    broker: Served, monkeypatch: pytest.MonkeyPatch, others: str
) -> None:
    chunks_of(8, monkeypatch)
    unanswered: set[int] = set()

    def forgetful(request: Frame) -> Frame | None:
        offset = request_fields(request)["queueOffset"]
        is_forgotten = offset == 40 or (others == "unanswered" and offset >= 40)
        if is_sample(request) or not is_forgotten or offset in unanswered:
            return broker.pull(request)
        unanswered.add(offset)
        return None

    broker.cluster.script[RequestCode.PULL_MESSAGE] = forgetful
    given = broker.options(path=f"{broker.url}?timeout=0.5", subscribe="orders", pullsAtOnce=4)
    assert offsets(rows_of(given)) == list(range(120))
    assert 40 in unanswered


def test_a_busy_broker_is_asked_again(broker: Served) -> None:
    def busy(request: Frame) -> Frame:
        if len(broker.cluster.asked(RequestCode.PULL_MESSAGE)) % 2:
            return response(request, ResponseCode.SYSTEM_BUSY, remark="[PC_SYNCHRONIZED]broker busy")
        return broker.pull(request)

    broker.cluster.script[RequestCode.PULL_MESSAGE] = busy
    assert offsets(rows_of(broker.options(subscribe="orders"))) == list(range(120))


def test_what_a_broker_refuses_is_told_as_it_says_it(broker: Served) -> None:
    refused = "the consumer group[rmqclient-spark] not permitted"
    broker.cluster.script[RequestCode.PULL_MESSAGE] = lambda request: response(
        request, ResponseCode.NO_PERMISSION, remark=refused
    )
    with pytest.raises(NoPermission, match=r"the consumer group.rmqclient-spark. not permitted"):
        rows_of(broker.options())


# --- what is lost ---------------------------------------------------------------------------------


def remove_oldest(broker: Served) -> None:
    for offset in range(10):
        del broker.records["orders", 0][offset]


def lose_one(broker: Served) -> None:
    del broker.records["orders", 0][50]


def lose_the_end(broker: Served) -> None:
    for offset in range(110, 120):
        del broker.records["orders", 0][offset]
    broker.ends["orders", 0] = 110


def damage(broker: Served) -> None:
    tag, record = broker.records["orders", 0][50]
    broker.records["orders", 0][50] = tag, record[:11] + bytes((record[11] ^ 1,)) + record[12:]


def send_another(broker: Served) -> None:
    broker.records["orders", 0][50] = broker.records["payments", 1][20]


LOSSES = [
    (remove_oldest, "offsets 0 to 9: cannot be read: removed: the oldest message is 10", range(10)),
    (lose_one, "offset 50: cannot be read: the broker has no record of it", range(50, 51)),
    (lose_the_end, "offsets 110 to 119: cannot be read: the queue ends at 110", range(110, 120)),
    (damage, "offset 50: cannot be read: the CRC of the body does not match", range(50, 51)),
    (send_another, "offset 50: cannot be read: the broker sent another message", range(50, 51)),
]


@pytest.mark.guarantee("G30")
@pytest.mark.parametrize(("happens", "told", "lost"), LOSSES, ids=lambda each: getattr(each, "__name__", ""))
def test_messages_that_are_gone_are_told_or_passed_over(
    broker: Served, happens: Callable[[Served], None], told: str, lost: range
) -> None:
    # Given messages that are lost after the ranges of a read were settled
    strict, lax = (BatchReader(broker.options(failOnDataLoss=flag), SCHEMA) for flag in ("true", "false"))
    splits = strict.partitions()
    happens(broker)
    # Then the read says which ones, or passes them over
    with pytest.raises(DataLost, match=f"orders, queue 0 on broker-a, {told}.*failOnDataLoss to false"):
        [batch for split in splits for batch in strict.read(split)]
    found = [row for split in splits for batch in lax.read(split) for row in batch.to_pylist()]
    assert offsets(found) == [offset for offset in range(120) if offset not in lost]


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"archive": "s3://x/y"}, "option archive: a cluster has no archive"),
        ({"split": "log"}, "option split=log: the log of a broker cannot be read from afar"),
        (
            {"startingOffsets": '{"orders": {"0": 1}}'},
            r'give JSON such as {"orders": {"broker-a": {"0": 23, "1": 42}}}',
        ),
        ({"assign": '{"orders": [0]}'}, r'option assign=.*: give JSON such as {"orders": {"broker-a": \[0, 1\]}}'),
    ],
)
def test_an_option_that_no_cluster_has_is_named(broker: Served, given: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        broker.options(**given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"consumerGroup": "g"}, "option consumerGroup: only a cluster has it"),
        ({"pullsAtOnce": "3"}, "option pullsAtOnce: only a cluster has it"),
        ({"startingOffsets": '{"orders": {"broker-a": {"0": 1}}}'}, r'JSON such as {"orders": {"0": 23, "1": 42}}'),
    ],
)
def test_an_option_that_only_a_cluster_has_is_named(given: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse({"path": "./store", "subscribe": "orders", **given}, streaming=False)


def test_a_topic_that_is_unknown_is_named_with_those_that_exist(broker: Served) -> None:
    with pytest.raises(
        UnknownTopic, match="nothing was ever sent to nope; topics there: %RETRY%g, TBW102, orders, pay"
    ):
        rows_of(broker.options(subscribe="orders,nope"))


def test_a_read_of_a_directory_imports_nothing_of_a_cluster() -> None:
    code = """
import sys
from rmqclient.spark.reading import batch_reader, stream_reader
from rmqclient.spark.writing import writer
print([name for name in sys.modules if name.startswith(("rmqclient.cluster", "rmqclient.remoting"))])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "[]\n"


def is_sample(request: Frame) -> bool:
    """Tell whether the planning asks for the size of a message."""
    return bool(request_fields(request)["maxMsgNums"] == 1)
