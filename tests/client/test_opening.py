"""Opening a directory: what is made, what is refused, and what an error says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqclient import Message, MessageQueue, Producer, PullConsumer, StoreConfig
from rmqclient.admin import Admin
from rmqclient.errors import ConfigMismatch, StoreClosed, StoreInUse, StoreUnusable, UnknownTopic
from rmqclient.store import layout, open_store
from tests.support.oracle import reference

SMALL = StoreConfig(commit_log_file_bytes=1 << 20, consume_queue_file_entries=100, max_body_bytes=100_000)


def test_a_directory_is_made_on_first_use_and_only_for_its_owner(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "store"
    with Producer(root) as producer:
        producer.send(Message("t", b""))
    assert {path.name for path in root.iterdir()} == {
        "checkpoint", "commitlog", "config", "consumequeue", "identity.json", "index", "lock", "shared", "store.json",
    }  # fmt: skip
    assert root.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in root.rglob("*") if path.is_file())


def test_looking_does_not_make_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="no-store"):
        open_store(tmp_path / "no-store", create=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreUnusable, match="holds no store"):
        open_store(tmp_path / "empty", create=False)
    assert list((tmp_path / "empty").iterdir()) == []


def test_abort_stands_while_the_store_is_open_and_goes_with_the_last_process(tmp_path: Path) -> None:
    first = open_store(tmp_path)
    second = open_store(tmp_path)
    first.close()
    assert (tmp_path / "abort").exists()
    second.close()
    assert not (tmp_path / "abort").exists()


@pytest.mark.guarantee("G9")
def test_a_directory_that_a_broker_has_open_is_refused_with_the_brokers_process(tmp_path: Path) -> None:
    with Producer(tmp_path) as producer:
        producer.send(Message("t", b""))
    before = snapshot(tmp_path)
    holder = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX, 1, 0, 0);"
        "print('held', flush=True); sys.stdin.read()"
    )
    broker = subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert broker.stdout is not None
    assert broker.stdout.readline() == "held\n"
    with pytest.raises(StoreInUse, match=str(broker.pid)) as raised:
        Producer(tmp_path)
    assert raised.value.retryable
    assert snapshot(tmp_path) == before
    broker.communicate("")
    Producer(tmp_path).close()


def test_a_broker_cannot_lock_a_store_that_is_open(tmp_path: Path) -> None:
    with open_store(tmp_path):
        code = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)"
        asked = subprocess.run([sys.executable, "-c", code, str(tmp_path / "lock")], capture_output=True, check=False)
        assert b"BlockingIOError" in asked.stderr


@pytest.mark.guarantee("G9")
def test_other_fixed_settings_than_the_directorys_are_refused(tmp_path: Path) -> None:
    Producer(tmp_path, config=SMALL).close()
    with pytest.raises(ConfigMismatch, match="commit_log_file_bytes=1048576"):
        Producer(tmp_path, config=StoreConfig())
    with Producer(tmp_path) as producer:  # without a config, the directory's own
        producer.send(Message("t", bytes(SMALL.max_body_bytes)))


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize("text", ["{}", "not json", '{"format_version": 99}', "[]"])
def test_a_store_json_of_another_kind_is_refused(tmp_path: Path, text: str) -> None:
    Producer(tmp_path).close()
    (tmp_path / "store.json").write_text(text)
    before = snapshot(tmp_path)
    with pytest.raises(ConfigMismatch, match=r"store\.json"):
        Producer(tmp_path)
    assert snapshot(tmp_path) == before


@pytest.mark.guarantee("G9")
def test_a_commit_log_file_cut_short_is_named_and_gets_its_size_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(tmp_path, config=SMALL) as producer:
        producer.send(Message("t", b""))
    os.truncate(tmp_path / "commitlog" / ("0" * 20), 4096)
    with Producer(tmp_path) as producer:
        assert producer.send(Message("t", b"")).commit_log_offset > 0
    assert "4096 bytes instead of 1048576" in caplog.text
    assert (tmp_path / "commitlog" / ("0" * 20)).stat().st_size == 1_048_576


def test_a_running_store_of_another_build_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.state.words.store(layout.RUNTIME_HEADER.at["fingerprint"], 7)
        with pytest.raises(ConfigMismatch, match="another build"):
            Producer(tmp_path)


@pytest.mark.guarantee("G9")
def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a store")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreUnusable, match="file"):
            Producer(path)


@pytest.mark.guarantee("G9")
def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    Producer(tmp_path).close()
    mounted = subprocess.run(
        ["unshare", "-m", "sh", "-c", 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && "$1" -c "$2" "$0"',
         str(tmp_path), sys.executable, "import sys, rmqclient; rmqclient.Producer(sys.argv[1])"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "unshare" in mounted.stderr or "mount:" in mounted.stderr:
        pytest.skip(f"no read-only mount can be made here: {mounted.stderr.strip().splitlines()[-1]}")
    assert "StoreUnusable" in mounted.stderr
    assert "mounted read-only" in mounted.stderr


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.close()
    store.close()
    with pytest.raises(StoreClosed, match="was closed"):
        store.messages.read(0)


def test_an_unknown_topic_is_named(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, pytest.raises(UnknownTopic, match="nowhere"):
        Admin(store).topic("nowhere")


@pytest.mark.guarantee("G5")
def test_a_hostile_record_names_no_directory_and_the_records_around_it_are_served(tmp_path: Path) -> None:
    # Given a store without our checkpoint and CRCs, as a broker writes it, with a topic that leads out of it
    log = b""
    for topic in ("orders", "../../../up", "payments"):
        record = reference.ReferenceRecord(topic=topic, body=b"body", commit_log_offset=len(log))
        log += reference.encode(record, crc_property=False)
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / ("0" * 20)).write_bytes(log.ljust(150_000, b"\0"))

    # When it is opened, then nothing outside was made, nothing was cut, and the good messages are there
    with open_store(root) as store:
        assert store.topics.topics() == ["orders", "payments"]
        assert store.messages.at(MessageQueue("payments", 0), 0).body == b"body"
        assert store.state.published_to == len(log)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_symbolic_link_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with Producer(root, config=SMALL) as producer:
        producer.send(Message("t", b""))
    file = root / "commitlog" / ("0" * 20)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreUnusable, match="symbolic link"):
        Producer(root)


def snapshot(root: Path) -> dict[str, bytes]:
    """Return the bytes of every file but the runtime file."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "shared"
    }


_A_DAEMON = """
import os, sys
from rmqclient import Durability, Producer, StoreConfig

told = os.dup2(os.open(sys.argv[2], os.O_WRONLY), 100)
for stream in (0, 1, 2):
    os.close(stream)
with Producer(sys.argv[1], config=StoreConfig(durability=Durability.SYNC)) as producer:
    producer.send("t", b"before")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    producer.send("other", b"behind")
os.write(told, b"closed")
"""


def test_a_program_may_close_its_streams_and_open_them_again(tmp_path: Path) -> None:
    # Given a daemon that opens a store without streams
    told = tmp_path / "told"
    told.touch()

    # When it leads them to nowhere then
    ended = subprocess.run([sys.executable, "-c", _A_DAEMON, str(tmp_path / "store"), str(told)], check=False)

    # Then no file of the store was among them: it goes on sending, and leaves the store clean
    assert (ended.returncode, told.read_text()) == (0, "closed")
    assert not (tmp_path / "store" / "abort").exists()


def test_a_link_to_a_directory_names_the_store_in_it_also_when_it_is_set_to_another_one(tmp_path: Path) -> None:
    # Given a closed store that is opened by a link, and one that a link makes
    stores = [tmp_path / name for name in ("blue", "green")]
    link = tmp_path / "current"
    for root in stores:
        root.mkdir()
        link.unlink(missing_ok=True)
        link.symlink_to(root)
        for body in (b"made", b"opened"):
            with Producer(link) as producer:
                producer.send("orders", body)

    # When the link is set to the first one under a producer of the second
    with Producer(link) as producer:
        link.unlink()
        link.symlink_to(stores[0])
        producer.send("orders", b"still here")

    # Then each process stays in the store that it opened
    for root, bodies in zip(stores, ([b"made", b"opened"], [b"made", b"opened", b"still here"]), strict=True):
        with PullConsumer(root, group="billing") as consumer:
            assert sorted(bytes(each.body) for each in consumer.messages("orders", wait=0)) == bodies
