"""Topics and offsets in the files that RocketMQ reads too."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.store.errors import InvalidName, StoreCorrupt
from rmqclient.store.settings import config_file, document
from rmqclient.store.settings.config_file import TopicConfig
from tests.unit.settings.broker_files import BROKER_OFFSETS, BROKER_TOPICS, ONE_TOPIC

NAMES = st.text("%|abzAZ09_-", min_size=1, max_size=12)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    return tmp_path


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


# --- topics ---------------------------------------------------------------------------------------


def test_a_brokers_topics_are_read(root: Path) -> None:
    (root / "config/topics.json").write_bytes(BROKER_TOPICS)
    topics = config_file.read_topics(root)
    assert list(topics) == ["TopicA", "SCHEDULE_TOPIC_XXXX", "%RETRY%G1", "broker-a", "BenchmarkTest"]
    assert topics["TopicA"] == TopicConfig(4, 4, perm=6, order=False, topic_filter_type="SINGLE_TAG", topic_sys_flag=0)
    assert topics["broker-a"].perm == 7
    assert topics["BenchmarkTest"].read_queue_count == 1024


def test_no_file_is_no_topics_and_missing_fields_are_rocketmqs_defaults(root: Path) -> None:
    assert config_file.read_topics(root) == {}
    (root / "config/topics.json").write_bytes(b'{"topicConfigTable":{"T":{"topicName":"T"}}}')
    assert config_file.read_topics(root) == {"T": TopicConfig(16, 16)}


def test_a_topic_is_written_as_rocketmq_writes_it(root: Path) -> None:
    config_file.write_topics(root, {"TopicA": TopicConfig(4, 4)}, now_ms=1795208291936)
    assert (root / "config/topics.json").read_bytes() == ONE_TOPIC


def test_writing_keeps_what_a_broker_wrote(root: Path) -> None:
    # Given a file with other topics, a name that is no topic, and fields of RocketMQ 5
    document = orjson.loads(BROKER_TOPICS)
    document["dataVersion"]["stateVersion"] = 0
    document["topicConfigTable"]["TopicA"]["attributes"] = {"+message.type": "FIFO"}
    document["topicConfigTable"]["broker.host"] = {"perm": 7}
    (root / "config/topics.json").write_bytes(orjson.dumps(document))
    # When one topic changes and one is new
    config_file.write_topics(root, {"TopicA": TopicConfig(8, 8), "New": TopicConfig(1, 1)}, now_ms=17)
    # Then nothing else does
    written = orjson.loads((root / "config/topics.json").read_bytes())
    assert written["dataVersion"] == {"counter": 6, "timestamp": 17, "stateVersion": 0}
    document["topicConfigTable"]["TopicA"] |= {"readQueueNums": 8, "writeQueueNums": 8}
    new = written["topicConfigTable"].pop("New")
    assert new["topicName"] == "New"
    assert written["topicConfigTable"] == document["topicConfigTable"]
    assert "broker.host" not in config_file.read_topics(root)


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\n", "a@b", "中文", "x" * 128])
def test_a_name_that_could_leave_the_directory_is_refused_before_anything_is_written(root: Path, name: str) -> None:
    with pytest.raises(InvalidName):
        config_file.write_topics(root, {"Good": TopicConfig(), name: TopicConfig()})
    with pytest.raises(InvalidName):
        config_file.write_consumer_offsets(root, {("Good", name): {0: 1}})
    assert names_in(root / "config") == set()
    # And one that is in a file does not come out of it
    (root / "config/topics.json").write_bytes(orjson.dumps({"topicConfigTable": {name: {}}}))
    assert config_file.read_topics(root) == {}


@pytest.mark.parametrize(
    "entry", [{"readQueueNums": "4"}, {"readQueueNums": -1}, {"writeQueueNums": 2**31}, {"perm": True}, {"order": 0}, 5]
)
def test_a_value_of_the_wrong_kind_is_named(root: Path, entry: object) -> None:
    (root / "config/topics.json").write_bytes(orjson.dumps({"topicConfigTable": {"TopicA": entry}}))
    with pytest.raises(StoreCorrupt, match="TopicA"):
        config_file.read_topics(root)


@pytest.mark.parametrize("text", [b'{"topicConfigTable":[]}', b'{"dataVersion":1}', b'{"dataVersion":{"counter":"x"}}'])
def test_a_file_of_another_shape_is_not_overwritten(root: Path, text: bytes) -> None:
    (root / "config/topics.json").write_bytes(text)
    with pytest.raises(StoreCorrupt):
        config_file.write_topics(root, {"TopicA": TopicConfig()})
    assert (root / "config/topics.json").read_bytes() == text


def test_a_topic_with_more_queues_than_a_store_can_have_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    path.write_bytes(b'{"topicConfigTable":{"t":{"readQueueNums":1999999999}}}')
    with pytest.raises(StoreCorrupt, match="readQueueNums is 1999999999: a store has at most 16384 queues"):
        config_file.read_topics(tmp_path)


# --- consumer offsets -----------------------------------------------------------------------------


def test_a_brokers_offsets_are_read(root: Path) -> None:
    (root / "config/consumerOffset.json").write_bytes(BROKER_OFFSETS)
    assert config_file.read_consumer_offsets(root) == {
        ("TopicA", "G1"): {0: 5, 1: 7},
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "CID_RMQ_SYS_TRANS"): {0: 2},
        ("RMQ_SYS_TRANS_HALF_TOPIC", "CID_RMQ_SYS_TRANS"): {0: 5},
        ("%RETRY%G1", "G1"): {0: 0},
    }


def test_offsets_are_written_as_json_over_those_of_the_same_queues(root: Path) -> None:
    path = root / "config/consumerOffset.json"
    path.write_bytes(BROKER_OFFSETS)
    config_file.write_consumer_offsets(root, {("TopicA", "G1"): {1: 9, 10: 3}, ("TopicB", "G2"): {0: 2**40}})
    expected = document.parse(BROKER_OFFSETS, path)
    expected["offsetTable"]["TopicA@G1"] = {"0": 5, "1": 9, "10": 3}
    expected["offsetTable"]["TopicB@G2"] = {"0": 2**40}
    assert orjson.loads(path.read_bytes()) == expected
    assert b'\t\t"TopicA@G1":{\n\t\t\t"0":5,\n\t\t\t"1":9,\n\t\t\t"10":3\n\t\t},\n' in path.read_bytes()


@given(st.dictionaries(st.tuples(NAMES, NAMES), st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))))
def test_offsets_that_were_written_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, offsets: dict[tuple[str, str], dict[int, int]]
) -> None:
    root = tmp_path_factory.mktemp("store")
    config_file.write_consumer_offsets(root, offsets)
    assert config_file.read_consumer_offsets(root) == offsets


def test_keys_that_are_no_topic_and_group_and_offsets_below_zero_are_left_out_and_kept(root: Path) -> None:
    path = root / "config/consumerOffset.json"
    path.write_bytes(b'{"offsetTable":{"a@b@c":{0:1},"alone":{0:1},"../x@g":{0:1},"t@g":{0:-1,1:2}},"dataVersion":{}}')
    assert config_file.read_consumer_offsets(root) == {("t", "g"): {1: 2}}
    config_file.write_consumer_offsets(root, {("t", "g"): {1: 3}})
    assert orjson.loads(path.read_bytes()) == {
        "dataVersion": {},
        "offsetTable": {"a@b@c": {"0": 1}, "alone": {"0": 1}, "../x@g": {"0": 1}, "t@g": {"0": -1, "1": 3}},
    }


@pytest.mark.parametrize("entry", ['{"0":"5"}', '{"x":5}', '{"0":5.5}', "[5]"])
def test_an_offset_that_is_no_integer_is_corrupt(root: Path, entry: str) -> None:
    (root / "config/consumerOffset.json").write_text('{"offsetTable":{"t@g":' + entry + "}}")
    with pytest.raises(StoreCorrupt, match="t@g"):
        config_file.read_consumer_offsets(root)


def test_the_digest_tells_whether_somebody_else_wrote_the_file(root: Path) -> None:
    path = root / "config/consumerOffset.json"
    assert config_file.consumer_offsets_digest(root) == 0
    digest = config_file.write_consumer_offsets(root, {("t", "g"): {0: 5}})
    assert 0 < digest < 2**64
    assert config_file.consumer_offsets_digest(root) == digest
    path.write_bytes(path.read_bytes().replace(b"5", b"6"))
    assert config_file.consumer_offsets_digest(root) not in (0, digest)
