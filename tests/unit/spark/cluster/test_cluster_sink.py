"""Rows that Spark sends to a cluster: each at least once, copies with one id, the rows of a queue in their order."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

import pyarrow as pa
from pyspark.sql.types import (
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rmqclient.errors import BrokerUnreachable, MessageRejected
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import NoPermission
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields, response
from rmqclient.spark.cluster import patience
from rmqclient.spark.writing import sending
from rmqclient.spark.writing.cluster_writer import ClusterBatchWriter, Sent
from rmqclient.spark.writing.write_options import parse, parse_for_cluster
from tests.support.cluster.scripted_cluster import ScriptedCluster, scripted_cluster

TYPES: dict[str, tuple[DataType, pa.DataType]] = {
    "value": (StringType(), pa.string()),
    "key": (StringType(), pa.string()),
    "topic": (StringType(), pa.string()),
    "tags": (StringType(), pa.string()),
    "partition": (IntegerType(), pa.int32()),
    "broker_name": (StringType(), pa.string()),
    "properties": (MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string())),
    "born_timestamp": (TimestampType(), pa.timestamp("us", tz="UTC")),
}
_HEAD = struct.Struct(">iqii")


class Stored(NamedTuple):
    """A row as a broker got it."""

    queue: tuple[str, int]
    body: str
    properties: dict[str, str]
    born_ms: int


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with scripted_cluster(
        {RequestCode.SEND_BATCH_MESSAGE: stored}, topics={"out": 2, "other": 2}, brokers=("broker-a", "broker-b")
    ) as running:
        yield running


def stored(request: Frame) -> Frame:
    """Answer that a batch is stored."""
    ids = ",".join("0" * 32 for _ in rows_of(request))
    return response(request, msgId=ids, queueId=request_fields(request)["queueId"], queueOffset=0)


def rows_of(request: Frame) -> list[Stored]:
    """Return the rows of a request."""
    fields, at, found = request_fields(request), 0, []
    while at < len(request.body):
        size, _, _, body_size = _HEAD.unpack_from(request.body, at)
        body = request.body[at + _HEAD.size : at + _HEAD.size + body_size]
        text = request.body[at + _HEAD.size + body_size + 2 : at + size].decode()
        properties = dict(pair.split("\x01", 1) for pair in text.split("\x02") if pair)
        queue = request.fields["n"], fields["queueId"]
        found.append(Stored(queue, body.decode(), properties, fields["bornTimestamp"]))
        at += size
    return found


def got(cluster: ScriptedCluster) -> list[Stored]:
    return [row for request in cluster.asked(RequestCode.SEND_BATCH_MESSAGE) for row in rows_of(request)]


def write(cluster: ScriptedCluster, rows: list[dict[str, Any]], **options: str) -> Sent:
    names = [name for name in TYPES if any(name in row for row in rows)]
    arrays = [pa.array([row.get(name) for row in rows], TYPES[name][1]) for name in names]
    schema = StructType([StructField(name, TYPES[name][0]) for name in names])
    given = {"path": f"rocketmq://{cluster.address}", "topic": "out"} | options
    writer = ClusterBatchWriter({name: value for name, value in given.items() if value}, schema, overwrite=False)
    return writer.write(iter([pa.record_batch(arrays, names)]))


# --- what is sent ---------------------------------------------------------------------------------


def test_each_row_is_a_message_with_its_properties(cluster: ScriptedCluster) -> None:
    row = {"value": "v", "key": "k1 k2", "tags": "t", "properties": {"colour": "red"}}
    assert write(cluster, [row]).rows == 1
    (found,) = got(cluster)
    assert found.body == "v"
    wanted = {"KEYS": "k1 k2", "TAGS": "t", "colour": "red", "__SHARDINGKEY": "k1 k2"}
    assert {name: found.properties[name] for name in wanted} == wanted


def test_rows_of_a_key_go_to_one_queue_in_their_order(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_BATCH_ROWS", 3)
    write(cluster, [{"value": str(number), "key": f"k{number % 5}"} for number in range(200)])
    found = got(cluster)
    assert len(found) == 200
    for key in range(5):
        mine = [row for row in found if row.properties["KEYS"] == f"k{key}"]
        assert len({row.queue for row in mine}) == 1
        assert [int(row.body) for row in mine] == list(range(key, 200, 5))


def test_rows_without_a_key_go_to_every_queue(cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_BATCH_ROWS", 3)
    write(cluster, [{"value": str(number)} for number in range(60)])
    found = got(cluster)
    assert sorted(int(row.body) for row in found) == list(range(60))
    assert {row.queue for row in found} == {(name, number) for name in ("broker-a", "broker-b") for number in (0, 1)}


def test_a_row_may_name_its_queue_and_its_topic(cluster: ScriptedCluster) -> None:
    row = {"value": "v", "topic": "other", "partition": 1, "broker_name": "broker-b"}
    write(cluster, [row], topic="")
    (request,) = cluster.asked(RequestCode.SEND_BATCH_MESSAGE)
    assert request_fields(request)["topic"] == "other"
    assert got(cluster)[0].queue == ("broker-b", 1)


def test_rows_keep_the_time_when_they_were_sent(cluster: ScriptedCluster) -> None:
    # One request has one time for all its rows
    times = [1_000, 1_000, 2_000, 1_000]
    write(cluster, [{"value": str(n), "key": "k", "born_timestamp": each * 1000} for n, each in enumerate(times)])
    assert [(row.body, row.born_ms) for row in got(cluster)] == [(str(n), each) for n, each in enumerate(times)]


def test_a_namespace_is_added_on_the_wire(cluster: ScriptedCluster) -> None:
    cluster.state.topics = None
    write(cluster, [{"value": "v"}], path=f"rocketmq://{cluster.address}/shop")
    (request,) = cluster.asked(RequestCode.SEND_BATCH_MESSAGE)
    assert request_fields(request)["topic"] == "shop%out"
    assert got(cluster)[0].properties["INSTANCE_ID"] == "shop"


# --- at least once --------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["busy", "hangs up"])
def test_a_batch_that_fails_is_sent_again_with_the_same_ids(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr(sending, "_BATCH_ROWS", 5)
    failures = iter(range(4))

    def at_first_not(request: Frame) -> Frame | None:
        if next(failures, None) is None:
            return stored(request)
        if trouble == "busy":
            return response(request, ResponseCode.SYSTEM_BUSY, remark="[TIMEOUT_CLEAN_QUEUE]broker busy")
        cluster.hang_up()
        return None

    cluster.script[RequestCode.SEND_BATCH_MESSAGE] = at_first_not
    write(cluster, [{"value": str(number), "key": f"k{number % 5}"} for number in range(50)])
    found = got(cluster)
    assert len(found) > 50, "some came twice"
    assert len({(row.body, row.properties["UNIQ_KEY"]) for row in found}) == 50


def test_a_write_that_is_repeated_under_its_name_has_the_same_ids(cluster: ScriptedCluster) -> None:
    rows = [{"value": str(number)} for number in range(10)]
    for _ in range(2):
        write(cluster, rows, txnAppId="daily", txnVersion="7")
    assert len({(row.body, row.properties["UNIQ_KEY"]) for row in got(cluster)}) == 10
    write(cluster, rows, txnAppId="daily", txnVersion="8")
    write(cluster, rows)
    assert len({row.properties["UNIQ_KEY"] for row in got(cluster)}) == 30


def test_a_broker_that_stays_away_ends_the_task(cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "PATIENCE_S", 0.2)
    monkeypatch.setattr(patience, "_PAUSES_S", (0.01,))
    cluster.stop("broker-b")
    with pytest.raises(BrokerUnreachable):
        write(cluster, [{"value": "v", "partition": 0, "broker_name": "broker-b"}])


def test_what_a_broker_refuses_ends_the_task(cluster: ScriptedCluster) -> None:
    cluster.script[RequestCode.SEND_BATCH_MESSAGE] = lambda request: response(
        request, ResponseCode.NO_PERMISSION, remark="the broker sending message is forbidden"
    )
    with pytest.raises(NoPermission, match="the broker sending message is forbidden"):
        write(cluster, [{"value": "v"}])


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"value": None, "key": "k"}, "row 1 of the part: column value is null"),
        (
            {"value": "v", "partition": 1, "broker_name": None},
            "partition is 1, broker_name is None: a queue needs",
        ),
        ({"value": "v", "properties": {"UNIQ_KEY": "x"}}, "row 1 of the part: .*UNIQ_KEY"),
    ],
)
def test_a_row_that_can_be_no_message_is_named(cluster: ScriptedCluster, row: dict[str, Any], told: str) -> None:
    with pytest.raises(MessageRejected, match=told):
        write(cluster, [{"value": "first"}, row])


def test_a_partition_alone_names_no_queue_of_a_cluster(cluster: ScriptedCluster) -> None:
    with pytest.raises(ValueError, match=r"each broker .* numbers its queues from 0: add the column broker_name"):
        write(cluster, [{"value": "v", "partition": 1}])


def test_options_of_the_other_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="option flush: the brokers of a cluster have a setting for it"):
        parse_for_cluster({"path": "rocketmq://h", "topic": "out", "flush": "none"}, streaming=False)
    with pytest.raises(ValueError, match="option producerGroup: only a cluster has it"):
        parse({"path": "./store", "topic": "out", "producerGroup": "g"}, streaming=False)


def test_a_whole_number_is_no_text(cluster: ScriptedCluster) -> None:
    schema = StructType([StructField("value", LongType())])
    with pytest.raises(ValueError, match="column value is of type bigint"):
        ClusterBatchWriter({"path": f"rocketmq://{cluster.address}", "topic": "out"}, schema, overwrite=False)
