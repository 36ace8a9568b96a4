"""Config files: what a broker wrote is read, what is written a broker reads, and a crash leaves a whole file."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.store.errors import ConfigMismatch, InvalidName, StoreCorrupt, StoreFull, StoreUnusable
from rmqclient.store.settings import config_file
from rmqclient.store.settings.config_file import StoreSettings, TopicConfig

ONE_TOPIC = b"""{
	"dataVersion":{
		"counter":1,
		"timestamp":1795208291936
	},
	"topicConfigTable":{
		"TopicA":{
			"order":false,
			"perm":6,
			"readQueueNums":4,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"TopicA",
			"topicSysFlag":0,
			"writeQueueNums":4
		}
	}
}"""

BROKER_TOPICS = b"""{
	"dataVersion":{
		"counter":5,
		"timestamp":1795208292896
	},
	"topicConfigTable":{
		"TopicA":{
			"order":false,
			"perm":6,
			"readQueueNums":4,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"TopicA",
			"topicSysFlag":0,
			"writeQueueNums":4
		},
		"SCHEDULE_TOPIC_XXXX":{
			"order":false,
			"perm":6,
			"readQueueNums":18,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"SCHEDULE_TOPIC_XXXX",
			"topicSysFlag":0,
			"writeQueueNums":18
		},
		"%RETRY%G1":{
			"order":false,
			"perm":6,
			"readQueueNums":1,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"%RETRY%G1",
			"topicSysFlag":0,
			"writeQueueNums":1
		},
		"broker-a":{
			"order":false,
			"perm":7,
			"readQueueNums":1,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"broker-a",
			"topicSysFlag":0,
			"writeQueueNums":1
		},
		"BenchmarkTest":{
			"order":false,
			"perm":6,
			"readQueueNums":1024,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"BenchmarkTest",
			"topicSysFlag":0,
			"writeQueueNums":1024
		}
	}
}"""
"""From a 4.9.8 broker, half of its topics."""

BROKER_OFFSETS = b"""{
	"offsetTable":{
		"TopicA@G1":{0:5,1:7
		},
		"RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:2
		},
		"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:5
		},
		"%RETRY%G1@G1":{0:0
		}
	}
}"""
"""From the same broker, byte for byte."""

BROADCAST_OFFSETS = b"""{
	"offsetTable":{{
			"brokerName":"broker-a",
			"queueId":1,
			"topic":"TopicA"
		}:9
	}
}"""

VALUES = st.recursive(
    st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.none() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(-99, 99).map(str), inner, max_size=3)
    ),
    max_leaves=20,
)

NAMES = st.text("%|abzAZ09_-", min_size=1, max_size=12)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    return tmp_path


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


# --- the dialect ----------------------------------------------------------------------------------


def test_unquoted_integer_keys_become_strings() -> None:
    assert config_file.parse(BROKER_OFFSETS, Path("x")) == {
        "offsetTable": {
            "TopicA@G1": {"0": 5, "1": 7},
            "RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS": {"0": 2},
            "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {"0": 5},
            "%RETRY%G1@G1": {"0": 0},
        }
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (rb'{"offsetTable":{}}', {"offsetTable": {}}),
        (b'{\n\t"offsetTable":{1:1\n\t}\n}', {"offsetTable": {"1": 1}}),
        (rb"{-1 : 2 ,30:[4,5,{6:7}]}", {"-1": 2, "30": [4, 5, {"6": 7}]}),
        (rb'{"a":"{1:2,3:4}",5:"{{"}', {"a": "{1:2,3:4}", "5": "{{"}),
        (rb'{"a\"{1:":",2:\\",3:"\\\"{4:5"}', {'a"{1:': ",2:\\", "3": '\\"{4:5'}),
        ('{1:"中文{2:3}"}'.encode(), {"1": "中文{2:3}"}),
    ],
)
def test_integers_are_quoted_where_they_are_keys_and_nowhere_else(text: bytes, expected: object) -> None:
    assert config_file.parse(text, Path("x")) == expected


@given(VALUES)
def test_what_is_printed_is_read_back_also_with_its_integer_keys_unquoted(value: object) -> None:
    document = {"7": value}
    text = config_file.render(document)
    assert config_file.parse(text, Path("x")) == document
    assert config_file.parse(text.replace(b'"7":', b"7:", 1), Path("x")) == document


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        (BROADCAST_OFFSETS, 17, "keys are objects"),
        (b"[1]", 0, "not a JSON object"),
        (b"{1:2,3:4,}", 9, ""),
        (b'{1:2,"a":"unterminated {3:4}', 28, ""),
        (b'{"a":1}old tail}', 7, ""),
        (b"\0" * 100, 0, ""),
        (b'{"a":"\xff"}', 0, "UTF-8"),
    ],
)
def test_what_is_neither_json_nor_the_dialect_is_corrupt_at_a_byte(text: bytes, position: int, reason: str) -> None:
    with pytest.raises(StoreCorrupt, match=rf"^x, byte \d+: .*{reason}") as raised:
        config_file.parse(text, Path("x"))
    assert raised.value.position == pytest.approx(position, abs=1)


def test_a_document_is_printed_as_rocketmq_prints_it() -> None:
    assert config_file.render(orjson.loads(ONE_TOPIC)) == ONE_TOPIC
    assert (
        config_file.render({"offsetTable": {}, "bitPos": [79, 55]}) == b'{\n\t"bitPos":[79,55],\n\t"offsetTable":{}\n}'
    )
    assert config_file.render({"b": 0, "10": 0, "9": 0}) == b'{\n\t"9":0,\n\t"10":0,\n\t"b":0\n}'


# --- files ----------------------------------------------------------------------------------------


def test_nothing_configured_is_none(root: Path) -> None:
    assert config_file.read(root / "config/topics.json") is None
    assert config_file.read(root / "no directory/topics.json") is None
    (root / "config/topics.json").write_bytes(b"\n")
    (root / "config/topics.json.bak").touch()
    assert config_file.read(root / "config/topics.json") is None


def test_the_old_text_is_kept_beside_the_new_one(root: Path) -> None:
    path = root / "config/topics.json"
    config_file.write(path, b'{"a":1}')
    assert names_in(root / "config") == {"topics.json"}
    config_file.write(path, b'{"a":2}')
    assert path.read_bytes() == b'{"a":2}'
    assert path.with_name("topics.json.bak").read_bytes() == b'{"a":1}'
    assert names_in(root / "config") == {"topics.json", "topics.json.bak"}


@pytest.mark.parametrize("damage", [None, b"", b"\0" * 7, b'{"a":', b'{"a":2}old}'])
def test_the_kept_text_is_read_when_the_file_is_missing_or_damaged(
    root: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = root / "config/topics.json"
    config_file.write(path, b'{"a":1}')
    config_file.write(path, b'{"a":2}')
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        assert config_file.read(path) == {"a": 1}
    assert len(caplog.records) == bool(damage)


def test_a_damaged_file_does_not_replace_the_good_one_that_was_kept(root: Path) -> None:
    path = root / "config/topics.json"
    path.write_bytes(b'{"a":')
    path.with_name("topics.json.bak").write_bytes(b'{"a":1}')
    config_file.write(path, b'{"a":3}')
    assert config_file.read(path) == {"a": 3}
    assert path.with_name("topics.json.bak").read_bytes() == b'{"a":1}'


@pytest.mark.parametrize(("text", "kept"), [(b"{", None), (b"{", b""), (b"{", b"{,"), (None, b"{"), (b"", b"{")])
def test_damage_without_a_good_copy_is_not_taken_for_an_empty_configuration(
    root: Path, text: bytes | None, kept: bytes | None
) -> None:
    path = root / "config/topics.json"
    for target, content in ((path, text), (path.with_name("topics.json.bak"), kept)):
        if content is not None:
            target.write_bytes(content)
    with pytest.raises(StoreCorrupt):
        config_file.read(path)
    with pytest.raises(StoreCorrupt):
        config_file.write_topics(root, {"TopicA": TopicConfig()})


def test_files_and_directories_are_private_whatever_the_mask(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        config_file.write(tmp_path / "config/topics.json", b"{}")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "config").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "config/topics.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename"])
@pytest.mark.parametrize("number", [1, 2])
def test_whatever_fails_while_writing_leaves_a_whole_file_and_no_litter(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    path = root / "config/topics.json"
    config_file.write(path, b'{"a":1}')
    # Given a disk that is full at the n-th call of one kind
    with monkeypatch.context() as patched:
        fail_at(patched, call, number)
        with pytest.raises(StoreFull, match=r"topics\.json"):
            config_file.write(path, b'{"a":2}')
    # Then the old text is there, and the next attempt works
    assert config_file.read(path) == {"a": 1}
    assert names_in(root / "config") <= {"topics.json", "topics.json.bak"}
    config_file.write(path, b'{"a":2}')
    assert config_file.read(path) == {"a": 2}


def fail_at(patched: pytest.MonkeyPatch, call: str, number: int) -> None:
    """Let the ``number``-th call that writes fail with ENOSPC, counted over the copy and the file."""
    left = [number]

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    real_open, real_fsync, real_rename = os.open, os.fsync, Path.rename

    def counted_open(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            if call == "open":
                count()
            elif call == "write":
                left[0] -= 1
                if left[0] == 0:
                    return real_open("/dev/full", os.O_WRONLY)
        return real_open(path, flags, mode)

    def counted_fsync(descriptor: int) -> None:
        if call == "fsync":
            count()
        real_fsync(descriptor)

    def counted_rename(path: Path, target: Path) -> Path:
        if call == "rename":
            count()
        return real_rename(path, target)

    patched.setattr(os, "open", counted_open)
    patched.setattr(os, "fsync", counted_fsync)
    patched.setattr(Path, "rename", counted_rename)


def test_the_text_is_on_the_disk_before_it_gets_its_name_and_the_name_after(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "config/topics.json"
    config_file.write(path, b'{"a":1}')
    done: list[str] = []
    real_fsync, real_rename = os.fsync, Path.rename

    def fsync(descriptor: int) -> None:
        done.append("fsync " + Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real_fsync(descriptor)

    def rename(source: Path, target: Path) -> Path:
        done.append("rename " + target.name)
        return real_rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    config_file.write(path, b'{"a":2}')
    assert done == [
        "fsync topics.json.bak.tmp",
        "rename topics.json.bak",
        "fsync topics.json.tmp",
        "rename topics.json",
        "fsync config",
    ]


def test_planted_links_and_pipes_are_refused(root: Path) -> None:
    path = root / "config/topics.json"
    (root / "elsewhere").write_bytes(b"{}")
    path.symlink_to(root / "elsewhere")
    with pytest.raises(StoreUnusable):
        config_file.read(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreUnusable):
        config_file.read(path)
    path.unlink()


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_at_the_temporary_name_is_not_written_through(root: Path, link: Callable[[Path, Path], None]) -> None:
    path = root / "config/topics.json"
    (root / "elsewhere").write_bytes(b"{}")
    link(root / "elsewhere", path.with_name("topics.json.tmp"))
    config_file.write(path, b'{"a":1}')
    assert (root / "elsewhere").read_bytes() == b"{}"
    assert config_file.read(path) == {"a": 1}
    assert not path.is_symlink()


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
    expected = config_file.parse(BROKER_OFFSETS, path)
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


# --- fixed settings -------------------------------------------------------------------------------


def test_fixed_settings_are_read_back_and_missing_ones_are_none(root: Path) -> None:
    assert config_file.read_store_settings(root) is None
    settings = StoreSettings(commit_log_file_bytes=4096, consume_queue_file_entries=16)
    config_file.write_store_settings(root, settings)
    assert config_file.read_store_settings(root) == settings
    assert (root / "store.json").read_bytes() == (
        b'{\n\t"commit_log_file_bytes":4096,\n\t"consume_queue_file_entries":16,\n\t"format_version":1,\n'
        b'\t"index_entries":400000,\n\t"index_slots":100000\n}'
    )
    (root / "store.json").write_bytes(
        b'{"commit_log_file_bytes":4096,"consume_queue_file_entries":16,"format_version":1}'
    )
    assert config_file.read_store_settings(root) == settings, "a store from before the index"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"format_version":1}',
        b'{"commit_log_file_bytes":4096,"consume_queue_file_entries":16}',
        b'{"commit_log_file_bytes":4096,"consume_queue_file_entries":16,"format_version":2}',
        b'{"commit_log_file_bytes":4096,"consume_queue_file_entries":16,"format_version":1,"more":1}',
        b'{"commit_log_file_bytes":"4096","consume_queue_file_entries":16,"format_version":1}',
        b'{"commit_log_file_bytes":0,"consume_queue_file_entries":16,"format_version":1}',
        b'{"commit_log_file_bytes":true,"consume_queue_file_entries":16,"format_version":1}',
    ],
)
def test_fixed_settings_are_never_guessed(root: Path, text: bytes) -> None:
    (root / "store.json").write_bytes(text)
    (root / "store.json.bak").write_bytes(
        b'{"commit_log_file_bytes":4096,"consume_queue_file_entries":16,"format_version":1}'
    )
    with pytest.raises(ConfigMismatch, match=r"store\.json"):
        config_file.read_store_settings(root)


# --- what fuzzing found ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nested", [b"[" * 900 + b"]" * 900, b'{"a":' * 900 + b"1" + b"}" * 900], ids=["lists", "objects"]
)
def test_a_file_that_nests_too_deeply_is_refused(tmp_path: Path, nested: bytes) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    path.write_bytes(b'{"other":%s}' % nested)
    for use in (config_file.read_topics, lambda root: config_file.write_topics(root, {"t": TopicConfig()})):
        with pytest.raises(StoreCorrupt, match=r"topics\.json.*nested deeper than 32 levels"):
            use(tmp_path)


def test_a_topic_with_more_queues_than_a_store_can_have_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    path.write_bytes(b'{"topicConfigTable":{"t":{"readQueueNums":1999999999}}}')
    with pytest.raises(StoreCorrupt, match="readQueueNums is 1999999999: a store has at most 16384 queues"):
        config_file.read_topics(tmp_path)
