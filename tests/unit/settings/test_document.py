"""JSON documents in RocketMQ's dialect, and how one is replaced."""

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

from rmqclient.store.errors import StoreCorrupt, StoreFull, StoreUnusable
from rmqclient.store.settings import config_file, document
from rmqclient.store.settings.config_file import TopicConfig
from tests.unit.settings.broker_files import BROKER_OFFSETS, ONE_TOPIC

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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    return tmp_path


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


# --- the dialect ----------------------------------------------------------------------------------


def test_unquoted_integer_keys_become_strings() -> None:
    assert document.parse(BROKER_OFFSETS, Path("x")) == {
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
    assert document.parse(text, Path("x")) == expected


@given(VALUES)
def test_what_is_printed_is_read_back_also_with_its_integer_keys_unquoted(value: object) -> None:
    whole = {"7": value}
    text = document.render(whole)
    assert document.parse(text, Path("x")) == whole
    assert document.parse(text.replace(b'"7":', b"7:", 1), Path("x")) == whole


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
        document.parse(text, Path("x"))
    assert raised.value.position == pytest.approx(position, abs=1)


def test_a_document_is_printed_as_rocketmq_prints_it() -> None:
    assert document.render(orjson.loads(ONE_TOPIC)) == ONE_TOPIC
    assert document.render({"offsetTable": {}, "bitPos": [79, 55]}) == b'{\n\t"bitPos":[79,55],\n\t"offsetTable":{}\n}'
    assert document.render({"b": 0, "10": 0, "9": 0}) == b'{\n\t"9":0,\n\t"10":0,\n\t"b":0\n}'


# --- files ----------------------------------------------------------------------------------------


def test_nothing_configured_is_none(root: Path) -> None:
    assert document.read(root / "config/topics.json") is None
    assert document.read(root / "no directory/topics.json") is None
    (root / "config/topics.json").write_bytes(b"\n")
    (root / "config/topics.json.bak").touch()
    assert document.read(root / "config/topics.json") is None


def test_the_old_text_is_kept_beside_the_new_one(root: Path) -> None:
    path = root / "config/topics.json"
    document.write(path, b'{"a":1}')
    assert names_in(root / "config") == {"topics.json"}
    document.write(path, b'{"a":2}')
    assert path.read_bytes() == b'{"a":2}'
    assert path.with_name("topics.json.bak").read_bytes() == b'{"a":1}'
    assert names_in(root / "config") == {"topics.json", "topics.json.bak"}


@pytest.mark.parametrize("damage", [None, b"", b"\0" * 7, b'{"a":', b'{"a":2}old}'])
def test_the_kept_text_is_read_when_the_file_is_missing_or_damaged(
    root: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = root / "config/topics.json"
    document.write(path, b'{"a":1}')
    document.write(path, b'{"a":2}')
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        assert document.read(path) == {"a": 1}
    assert len(caplog.records) == bool(damage)


def test_a_damaged_file_does_not_replace_the_good_one_that_was_kept(root: Path) -> None:
    path = root / "config/topics.json"
    path.write_bytes(b'{"a":')
    path.with_name("topics.json.bak").write_bytes(b'{"a":1}')
    document.write(path, b'{"a":3}')
    assert document.read(path) == {"a": 3}
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
        document.read(path)
    with pytest.raises(StoreCorrupt):
        config_file.write_topics(root, {"TopicA": TopicConfig()})


def test_files_and_directories_are_private_whatever_the_mask(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        document.write(tmp_path / "config/topics.json", b"{}")
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
    document.write(path, b'{"a":1}')
    # Given a disk that is full at the n-th call of one kind
    with monkeypatch.context() as patched:
        fail_at(patched, call, number)
        with pytest.raises(StoreFull, match=r"topics\.json"):
            document.write(path, b'{"a":2}')
    # Then the old text is there, and the next attempt works
    assert document.read(path) == {"a": 1}
    assert names_in(root / "config") <= {"topics.json", "topics.json.bak"}
    document.write(path, b'{"a":2}')
    assert document.read(path) == {"a": 2}


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
    document.write(path, b'{"a":1}')
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
    document.write(path, b'{"a":2}')
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
        document.read(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreUnusable):
        document.read(path)
    path.unlink()


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_at_the_temporary_name_is_not_written_through(root: Path, link: Callable[[Path, Path], None]) -> None:
    path = root / "config/topics.json"
    (root / "elsewhere").write_bytes(b"{}")
    link(root / "elsewhere", path.with_name("topics.json.tmp"))
    document.write(path, b'{"a":1}')
    assert (root / "elsewhere").read_bytes() == b"{}"
    assert document.read(path) == {"a": 1}
    assert not path.is_symlink()


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


@pytest.mark.guarantee("G93")
def test_a_file_that_is_far_too_long_is_refused_unread(root: Path) -> None:
    # Given a settings file of a terabyte of holes
    path = root / "topics.json"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(StoreCorrupt) as raised:
        document.content(path)
    assert raised.value.path == path
