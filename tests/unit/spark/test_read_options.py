"""Options of a Spark read: the table in the module is true, and whoever gives a wrong one is told what to give."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.filters.tag import parse_tags
from rmqclient.spark.scan import read_options
from rmqclient.spark.scan.read_options import ReadOptions, Selection, more_columns, parse
from rmqclient.store import MessageQueue
from rmqclient.store.errors import InvalidName

ORDERS_0, ORDERS_1 = MessageQueue("orders", 0), MessageQueue("orders", 1)
NEEDED = {"path": "./store", "subscribe": "orders"}


def batch(**options: str) -> ReadOptions:
    return parse(NEEDED | options, streaming=False)


def stream(**options: str) -> ReadOptions:
    beside = {"minOffsetsPerTrigger": "1"} if "maxTriggerDelay" in options else {}
    return parse(NEEDED | beside | options, streaming=True)


def documented() -> dict[str, str]:
    """Return option -> default, as the table in the docstring says."""
    lines = (read_options.__doc__ or "").splitlines()
    rulers = [number for number, line in enumerate(lines) if line.startswith("===")]
    second, third = (found.start() for found in list(re.finditer("=+", lines[rulers[0]]))[1:])
    found: dict[str, str] = {}
    for line in lines[rulers[1] + 1 : rulers[2]]:
        names, default = line[:second].split(", "), line[second:third].strip()
        defaults = default.split(", ") if len(names) > 1 and "," in default else [default] * len(names)
        found |= {name.strip(): each for name, each in zip(names, defaults, strict=True) if name.strip()}
    return found


# --- the table ------------------------------------------------------------------------------------


def test_every_option_stands_in_the_table() -> None:
    known = {*read_options._NAMES, "archive.*"}
    told = set(documented())
    assert told == known


@pytest.mark.parametrize(
    ("option", "attribute"),
    [
        ("failOnDataLoss", "fail_on_data_loss"),
        ("maxOffsetsPerTrigger", "max_offsets_per_trigger"),
        ("maxBytesPerTrigger", "max_bytes_per_trigger"),
        ("minOffsetsPerTrigger", "min_offsets_per_trigger"),
        ("maxTriggerDelay", "max_trigger_delay_ms"),
        ("maxRecordsPerPartition", "max_records_per_partition"),
        ("maxBytesPerPartition", "max_bytes_per_partition"),
        ("split", "split"),
        ("subExpression", "tags"),
        ("batchRows", "batch_rows"),
        ("batchBytes", "batch_bytes"),
        ("includeProperties", "properties"),
        ("includeMetadata", "metadata"),
        ("startingTimestamp", "starting_timestamp"),
        ("endingTimestamp", "ending_timestamp"),
        ("startingOffsets", "starting"),
        ("endingOffsets", "ending"),
        ("startingOffsetsByTimestampStrategy", "too_late_is_latest"),
        ("archive", "archive"),
        ("commitGroup", "commit_group"),
    ],
)
def test_a_default_is_what_the_table_says(option: str, attribute: str) -> None:
    default = documented()[option].split(";")[0]
    read = stream if option in read_options._OF_STREAMS else batch
    expected = None if default == "none" else getattr(read(**{option: default}), attribute)
    assert getattr(batch(), attribute) == expected


def test_a_stream_begins_at_the_latest_offset_and_a_batch_at_the_earliest() -> None:
    assert documented()["startingOffsets"] == "earliest; stream:"
    assert batch().starting == "earliest"
    assert stream().starting == "latest"


# --- what is given --------------------------------------------------------------------------------


def test_names_may_be_in_any_case_as_spark_hands_them_over_in_small_letters() -> None:
    assert parse({"PATH": "s", "SubScribe": "a"}, streaming=False) == parse(
        {"path": "s", "subscribe": "a"}, streaming=False
    )
    assert batch(MAXRECORDSPERPARTITION="7").max_records_per_partition == 7


def test_one_of_three_selections_is_given() -> None:
    path = {"path": "s"}
    assert parse(path | {"subscribe": "b, a,b"}, streaming=False).selection == Selection(topics=("b", "a"))
    assert parse(path | {"subscribePattern": "a.*"}, streaming=False).selection == Selection(pattern="a.*")
    assigned = parse(path | {"assign": '{"orders": [1, 0]}'}, streaming=False).selection
    assert assigned == Selection(assigned=(ORDERS_0, ORDERS_1))


@pytest.mark.parametrize(
    ("option", "text", "attribute", "value"),
    [
        ("maxBytesPerTrigger", "5", "max_bytes_per_trigger", 5),
        ("maxBytesPerTrigger", "5k", "max_bytes_per_trigger", 5 << 10),
        ("maxBytesPerPartition", "64 M", "max_bytes_per_partition", 64 << 20),
        ("batchBytes", "1g", "batch_bytes", 1 << 30),
        ("maxTriggerDelay", "250", "max_trigger_delay_ms", 250),
        ("maxTriggerDelay", "250ms", "max_trigger_delay_ms", 250),
        ("maxTriggerDelay", "3s", "max_trigger_delay_ms", 3_000),
        ("maxTriggerDelay", "15min", "max_trigger_delay_ms", 900_000),
        ("maxTriggerDelay", "2h", "max_trigger_delay_ms", 7_200_000),
        ("failOnDataLoss", "False", "fail_on_data_loss", False),
        ("failOnUnreadableBody", "false", "fail_on_unreadable_body", False),
        ("maxOpenedBodyBytes", "2m", "max_opened_body_bytes", 2 << 20),
        ("includeHeaders", "true", "properties", True),
        ("startingTimestamp", "0", "starting_timestamp", 0),
        ("subExpression", "paid || refunded", "tags", parse_tags("refunded || paid")),
        ("startingOffsets", '{"orders": {"0": 23, "1": -2}}', "starting", {ORDERS_0: 23, ORDERS_1: -2}),
        ("endingOffsets", '{"orders": {"0": -1, "1": 0}}', "ending", {ORDERS_0: -1, ORDERS_1: 0}),
        ("startingOffsetsByTimestamp", '{"orders": {"0": 17}}', "starting_timestamps", {ORDERS_0: 17}),
        ("startingOffsetsByTimestampStrategy", "latest", "too_late_is_latest", True),
        ("commitGroup", "reports", "commit_group", "reports"),
    ],
)
def test_a_value_is_read(option: str, text: str, attribute: str, value: object) -> None:
    read = stream if option in read_options._OF_STREAMS else batch
    assert getattr(read(**{option: text}), attribute) == value


def test_options_of_an_archives_file_system_are_handed_on() -> None:
    options = batch(archive="s3://there", **{"archive.endpoint_override": "localhost:9000"})
    assert options.archive == "s3://there"
    assert options.archive_options == {"endpoint_override": "localhost:9000"}


def test_options_that_only_a_kafka_broker_has_a_use_for_do_nothing() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "kafkaConsumer.pollTimeoutMs": "5", "groupIdPrefix": "g"}
    assert batch(**given, **{"fetchOffset.numRetries": "1"}) == batch()


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"path": None}, r"option path is missing: load the directory"),
        ({"subscribe": None}, r"options for topics are missing: give one of subscribe, subscribePattern, assign"),
        ({"assign": '{"a": [0]}'}, r"options subscribe, assign: give one of"),
        ({"subscribe": "a,,b"}, r"option subscribe=a,,b: a topic is missing between the commas"),
        ({"subscribe": None, "subscribePattern": "("}, r"option subscribePattern=\(: not a regular expression"),
        ({"subscribe": None, "assign": "orders"}, r'option assign=orders: give JSON such as {"orders": \[0, 1\]}'),
        ({"subscribe": None, "assign": '{"orders": [-1]}'}, r"option assign=.*: give JSON such as"),
        ({"subscribe": None, "assign": '{"orders": 0}'}, r"option assign=.*: give JSON such as"),
        ({"subscribe": None, "assign": "{}"}, r"option assign={}: names no queue"),
        ({"failOnDataLoss": "no"}, r"option failOnDataLoss=no: give true or false"),
        ({"includeMetadata": "1"}, r"option includeMetadata=1: give true or false"),
        ({"minPartitions": "0"}, r"option minPartitions=0: give a number of at least 1$"),
        ({"minPartitions": "-3"}, r"option minPartitions=-3: give a number of at least 1$"),
        ({"maxOffsetsPerTrigger": "5k"}, r"option maxOffsetsPerTrigger=5k: give a number of at least 1$"),
        ({"maxBytesPerTrigger": "5t"}, r"option maxBytesPerTrigger=5t: give a number of at least 1, .*unit: k m g"),
        ({"maxTriggerDelay": "5s"}, r"option maxTriggerDelay: nothing is waited for without minOffsetsPerTrigger"),
        (
            {"maxTriggerDelay": "soon", "minOffsetsPerTrigger": "1"},
            r"option maxTriggerDelay=soon: give a number of at least 1, .*unit: ms s m",
        ),
        ({"startingTimestamp": "-1"}, r"option startingTimestamp=-1: give a number of at least 0$"),
        ({"split": "both"}, r"option split=both: give auto or queue or log"),
        ({"startingOffsetsByTimestampStrategy": "no"}, r"give error or latest"),
        ({"startingOffsets": "first"}, r"option startingOffsets=first: give JSON such as"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, r"option startingOffsets=.*-3.*: give JSON such as"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, r"option startingOffsets=.*: give JSON such as"),
        ({"startingOffsets": '{"orders": {"zero": 1}}'}, r"option startingOffsets=.*: give JSON such as"),
        ({"startingOffsets": '{"orders": 1}'}, r"option startingOffsets=.*: give JSON such as"),
        ({"startingOffsets": "[]"}, r"option startingOffsets=\[\]: give JSON such as"),
        ({"startingOffsets": "latest"}, r"option startingOffsets=latest: that selects no messages"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, r"option startingOffsets: -1 for queue 0 of orders selects"),
        ({"endingOffsets": "earliest"}, r"option endingOffsets=earliest: that selects no messages"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, r"option endingOffsets: -2 for queue 0 of orders selects"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, r"option startingOffsetsByTimestamp=.*: give JSON"),
        ({"subExpression": "a ||"}, r"alternative 2 of 2 is empty"),
        (
            {"maxOffsetPerTrigger": "5"},
            r"option maxOffsetPerTrigger: the rmq source has no option .* maxOffsetsPerTrigger\?",
        ),
        ({"flavour": "sour"}, r"option flavour: the rmq source has no option of this name$"),
    ],
)
def test_a_wrong_option_is_named_with_its_value_and_what_to_give(options: dict[str, Any], told: str) -> None:
    given = {name: value for name, value in (NEEDED | options).items() if value is not None}
    streaming = any(name in read_options._OF_STREAMS for name in options)
    with pytest.raises(ValueError, match=told.replace("maxOffsetPerTrigger: the", "(?i:maxOffsetPerTrigger): the")):
        parse(given, streaming=streaming)


def test_a_group_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(InvalidName):
        stream(commitGroup="a/b")


@pytest.mark.parametrize("option", read_options._OF_STREAMS)
def test_what_only_a_stream_has_is_refused_in_a_batch(option: str) -> None:
    with pytest.raises(ValueError, match=f"option {option}: only a stream has it; leave it out, or use spark.readStr"):
        batch(**{option: "1"})


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(option: str) -> None:
    with pytest.raises(ValueError, match=f"option {option}: a stream has no end; leave it out, or use spark.read"):
        stream(**{option: "latest"})


def test_a_stream_may_begin_at_the_latest_offset_of_one_queue() -> None:
    assert stream(startingOffsets="latest").starting == "latest"
    assert stream(startingOffsets='{"orders": {"0": -1}}').starting == {ORDERS_0: -1}


def test_the_columns_are_asked_for_without_a_look_at_what_only_one_kind_of_read_takes() -> None:
    # Spark asks for the schema before it says whether it reads a batch or a stream
    assert more_columns(NEEDED | {"startingOffsets": "latest", "includeMetadata": "true"}) == (False, True, False)
    assert more_columns({"endingOffsets": "latest", "includeHeaders": "true"}) == (True, False, True)
    with pytest.raises(ValueError, match="option includeMetadata=si"):
        more_columns({"includeMetadata": "si"})


@given(st.dictionaries(st.sampled_from([*read_options._NAMES, "kafka.x", "x"]), st.text(max_size=12)))
def test_whatever_is_given_is_read_or_refused_with_words(options: dict[str, str]) -> None:
    try:
        parse(options, streaming=False)
    except (ValueError, InvalidName) as error:
        assert len(str(error)) > 10
