"""A store directory that is removed, renamed or replaced while processes have it open."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Producer, PullConsumer, StoreConfig
from rmqclient.consuming.reader import Reader
from rmqclient.errors import StoreReplaced, StoreUnusable
from rmqclient.health import findings
from rmqclient.store import life, open_store
from rmqclient.store.append import releaser
from rmqclient.store.observe.processes import look
from rmqclient.store.observe.reading import Reading
from rmqclient.store.recovery import opening, recovery
from rmqclient.store.repair import repair
from rmqclient.store.upkeep.flush import Flusher
from rmqclient.store.upkeep.timetable import Told, run_guarded
from rmqclient.workers.exit_codes import ExitCode
from rmqclient.workers.probe import main as checked

pytestmark = pytest.mark.guarantee("G88")

SMALL = StoreConfig(commit_log_file_bytes=1 << 20, consume_queue_file_entries=100, max_body_bytes=500_000)
TOLD_S = 20.0
"""Within a second on an idle machine."""


def files_of(root: Path) -> dict[Path, bytes]:
    """Return every file with its bytes."""
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def removed(root: Path) -> None:
    """Remove the store, with its directory. Until ``lock`` is gone, a file can be made in what was looked through."""
    while root.exists():
        shutil.rmtree(root, ignore_errors=True)


def emptied(root: Path) -> None:
    """Remove what is in the directory, which stays, and has its inode."""
    while left := list(root.iterdir()):
        for each in left:
            shutil.rmtree(each, ignore_errors=True) if each.is_dir() else each.unlink()


def renamed(root: Path) -> None:
    """Give the directory another name."""
    root.rename(root.with_name("moved"))


def in_place_of(root: Path, how: Callable[[Path], None]) -> None:
    """Put another store, with messages and a group, in the place of the one that is open."""
    how(root)
    with Producer(root, config=SMALL) as producer:
        for number in range(40):
            producer.send("orders", b"other %d" % number)
    with PullConsumer(root, group="billing") as consumer:
        for queue in consumer.queues("orders"):
            consumer.commit(queue, consumer.max_offset(queue))


ways = pytest.mark.parametrize("how", [removed, emptied, renamed])


@ways
def test_a_send_that_needs_a_file_is_refused_at_once(tmp_path: Path, how: Callable[[Path], None]) -> None:
    # Given a producer whose directory is another store now, which has files of the same names
    root = tmp_path / "store"
    producer = Producer(root, config=SMALL)
    producer.send("orders", b"mine")
    in_place_of(root, how)
    before = files_of(root)

    # When it sends more than what it has mapped
    with pytest.raises(StoreReplaced):
        for _ in range(10):
            producer.send("orders", bytes(400_000))
    with pytest.raises(StoreReplaced):
        producer.create_topic("another", 1)
    producer.close()

    # Then nothing of it is in the other store
    assert files_of(root) == before


@ways
def test_a_producer_is_told_soon_also_when_it_needs_no_file(tmp_path: Path, how: Callable[[Path], None]) -> None:
    root = tmp_path / "store"
    with Producer(root, config=SMALL) as producer:
        producer.send("orders", b"mine")
        how(root)
        until = time.monotonic() + TOLD_S
        with pytest.raises(StoreReplaced):
            while time.monotonic() < until:
                producer.send("orders", b"mine")
    assert not (root / "commitlog").exists()


@ways
def test_offsets_are_not_written_into_the_other_store(tmp_path: Path, how: Callable[[Path], None]) -> None:
    # Given a store whose offsets are to be written
    root = tmp_path / "store"
    store = open_store(root, SMALL, housekeeping=False)
    with Producer(store) as producer:
        producer.send("orders", b"mine", delay=1000)
        producer.create_topic("prices", 1, cleanup_policy="compact")
    in_place_of(root, how)
    before = files_of(root)

    # When everything is written that is written by name
    writes: list[Callable[[], object]] = [
        store.offsets.persist,
        store.schedule.persist,
        store.timer.persist,
        store.flusher.write_checkpoint,
        store.index.catch_up,
        store.retention.run,
        lambda: store.topics.create("another", 1),
        lambda: store.log_files.remove(0),
        lambda: store.log_files.allocate(1 << 20),
        lambda: store.fence("here", 7),
    ]
    for write in writes:
        with contextlib.suppress(StoreReplaced):  # what has nothing to write says nothing
            write()

    # And it is closed, then the other store is as it was
    store.close()
    assert files_of(root) == before


def test_a_store_that_is_closed_before_anybody_was_told_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releaser, "LOOKS_EVERY_MS", 600_000)  # its thread would be told first on a busy machine
    root = tmp_path / "store"
    store = open_store(root, SMALL, housekeeping=False)
    in_place_of(root, removed)
    before = files_of(root)
    with pytest.raises(StoreReplaced):
        store.close()
    assert files_of(root) == before


def test_consumers_of_the_old_store_begin_nothing_more(tmp_path: Path) -> None:
    root = tmp_path / "store"
    app = App(root, config=SMALL)
    handled: list[bytes] = []
    app.handler("orders", group="billing")(lambda body: handled.append(bytes(body)))
    with app.running() as consumer:
        removed(root)
        began = time.monotonic()
        consumer.drain(10 * TOLD_S)  # waits for the handlers' threads
        assert time.monotonic() - began < TOLD_S
        with Producer(root, config=SMALL) as producer:
            producer.send("orders", b"new")
    assert handled == []
    with PullConsumer(root, group="billing") as reader:
        assert [bytes(message.body) for message in reader.messages("orders", wait=0)] == [b"new"]


def test_a_process_that_has_found_it_once_does_nothing_more(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = open_store(root, SMALL, housekeeping=False)
    root.rename(tmp_path / "moved")
    with pytest.raises(StoreReplaced):
        store.offsets.persist()
    (tmp_path / "moved").rename(root)  # another process may have opened it meanwhile
    with pytest.raises(StoreReplaced):
        store.offsets.persist()
    with pytest.raises(StoreReplaced):
        store.topics.create("orders", 1)
    store.close()


@pytest.mark.parametrize("arguments", [["tail", "orders", "--from", "earliest"], ["send", "orders", "--lines", "-"]])
def test_a_command_that_is_at_work_ends(tmp_path: Path, arguments: list[str]) -> None:
    # Given a command that follows a topic, or has sent what stood in its pipe
    root = tmp_path / "store"
    with Producer(root, config=SMALL) as producer:
        producer.send("orders", b"mine")
    command = [sys.executable, "-m", "rmqclient.workers", *arguments, "--store", str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as at_work:
        assert at_work.stdin is not None
        assert at_work.stdout is not None
        assert at_work.stderr is not None
        at_work.stdin.write(b"piped\n")
        at_work.stdin.flush()
        if arguments[0] == "tail":
            assert b"mine" in at_work.stdout.readline()
        else:
            with Reader(root) as reader:
                assert b"piped" in [
                    bytes(message.body) for message in islice(reader.tail("orders", start="earliest"), 2)
                ]

        # When its store is renamed, then it says so, and writes nothing more to it
        root.rename(tmp_path / "moved")
        assert any(b"was removed or renamed" in line for line in at_work.stderr)
        with contextlib.suppress(BrokenPipeError):  # it may have ended by now
            at_work.stdin.write(b"late\n")
            at_work.stdin.close()
        assert at_work.wait(60) == ExitCode.STORE_CANNOT_BE_OPENED
    with PullConsumer(tmp_path / "moved", group="billing") as consumer:
        assert b"late" not in [bytes(message.body) for message in consumer.messages("orders", wait=0)]


def taken_away(path: Path) -> None:
    """Remove what all processes share by one name in a store."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def copied_over(path: Path) -> None:
    """Put a copy in its place, as who moves it to another disk does."""
    copy = path.with_name("copy")
    shutil.copytree(path, copy) if path.is_dir() else shutil.copy(path, copy)
    taken_away(path)
    copy.rename(path)


def test_a_lock_that_was_replaced_alone_guards_nothing_any_more(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, SMALL, housekeeping=False) as store:
        (root / "lock").unlink()
        (root / "lock").touch()
        with pytest.raises(StoreReplaced, match="replaced"):
            store.life.check_in_place()


def test_what_another_thread_has_just_made_and_noted_is_not_taken_for_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = str(tmp_path / "store" / "commitlog")
    with open_store(tmp_path / "store", SMALL, housekeeping=False) as store:
        identities, look = store.life._identities, life._identity

        def found_before_the_other_made_it(path: str) -> tuple[int, int] | None:
            if path == directory and path not in identities:
                Path(path).mkdir(exist_ok=True)
                identities[path] = look(path) or (0, 0)
                return None
            return look(path)

        monkeypatch.setattr(life, "_identity", found_before_the_other_made_it)
        identities.pop(directory, None)
        store.life.check_in_place()
        assert directory in identities


@pytest.mark.parametrize("how", [taken_away, copied_over])
@pytest.mark.parametrize("name", ["shared", "commitlog", "consumequeue"])
def test_a_shared_name_in_the_directory_that_leads_elsewhere_ends_the_use_of_the_store(
    tmp_path: Path, name: str, how: Callable[[Path], None]
) -> None:
    # Given two openings, which have seen what stands in the directory
    root = tmp_path / "store"
    first = open_store(root, SMALL, housekeeping=False)
    with Producer(first) as producer:
        producer.send("orders", b"mine")
        second = open_store(root, housekeeping=False)
        first.life.check_in_place()

        # When one name in it leads elsewhere
        how(root / name)

        # Then each of them finds it, and a send is answered no more
        with pytest.raises(StoreReplaced, match=name):
            second.life.check_in_place()
        until = time.monotonic() + TOLD_S
        with pytest.raises(StoreReplaced, match=name):
            while time.monotonic() < until:
                producer.send("orders", b"mine")
    for store in (first, second):
        store.close()


@pytest.mark.parametrize("how", [taken_away, copied_over])
def test_who_comes_later_shares_no_other_runtime_file_than_the_others(
    tmp_path: Path, how: Callable[[Path], None]
) -> None:
    root = tmp_path / "store"
    first = open_store(root, SMALL, housekeeping=False)
    how(root / "shared")
    with pytest.raises(StoreUnusable, match="shared"):
        open_store(root, housekeeping=False)
    with pytest.raises(StoreReplaced):
        first.close()
    with Producer(root) as producer:
        producer.send("orders", b"mine")


@pytest.mark.parametrize("how", [removed, emptied])
@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_check_names_who_has_a_store_open_that_was_removed(
    tmp_path: Path, how: Callable[[Path], None], is_replaced: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given a store that is removed, or replaced, under this process
    root = tmp_path / "store"
    with contextlib.suppress(StoreReplaced), Producer(root, config=SMALL) as producer:
        producer.send("orders", b"1")
        assert look(str(root)).left_behind == []
        if is_replaced:
            in_place_of(root, how)
        else:
            how(root)

        # Then a check names this process, and what to do
        if is_replaced:
            with Reading(str(root)) as seen:
                (found,) = (each for each in findings.look(seen) if each.check == "replaced")
            assert (found.subject, found.level) == (str(os.getpid()), findings.CRITICAL)
            assert found.remedy
        assert checked(["--store", str(root)]) != 0
        said = capsys.readouterr()
        assert f"process {os.getpid()} " in said.out + said.err

    # And once it has let go, none
    assert look(str(root)).left_behind == []


@pytest.mark.parametrize("how", [removed, renamed])
@pytest.mark.parametrize("name", ["disk.look", "retention.run", "flusher.write_checkpoint", "index.catch_up"])
def test_a_task_that_meets_it_first_gives_the_one_reason(
    tmp_path: Path, how: Callable[[Path], None], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    with open_store(root, SMALL, housekeeping=False) as store:
        with Producer(store) as producer:
            producer.send("orders", b"mine")
        how(root)
        run_guarded(attrgetter(name)(store), store.life.check_in_place, Told())
        with pytest.raises(StoreReplaced):
            store.life.check_in_place()
    assert [record for record in caplog.records if "was removed or renamed" in record.message] == caplog.records != []


@pytest.mark.parametrize("how", [removed, renamed])
@pytest.mark.parametrize(
    ("module", "step"),
    [
        (recovery, "first_steps"),
        (recovery, "plan_for"),
        (recovery, "apply"),
        (opening, "_new_state"),
        (opening, "_restore_groups"),
        (Flusher, "write_checkpoint"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_repair_writes_nothing_to_a_store_that_took_the_place_of_its_own(
    tmp_path: Path, how: Callable[[Path], None], module: object, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a store with much to be mended, and a copy that comes to its path behind a step of that
    root, other = tmp_path / "store", tmp_path / "other"
    in_place_of(root, lambda _: None)
    (root / "shared").unlink()
    (root / "abort").touch()
    offsets = json.loads((root / "config" / "consumerOffset.json").read_bytes())
    offsets["offsetTable"]["orders@billing"]["0"] = 1_000
    (root / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    os.truncate(root / "consumequeue" / "orders" / "0" / f"{0:020}", 40)
    shutil.copytree(root, other)
    (other / "shared.building").write_bytes(b"of another process, which opens it")
    before = files_of(other)
    plain = getattr(module, step)

    def replacing(*arguments: Any, **options: Any) -> Any:
        found = plain(*arguments, **options)
        if root.exists() and other.exists():
            how(root)
            other.rename(root)
        return found

    monkeypatch.setattr(module, step, replacing)

    # When it is repaired, then that ends, and the other store is as it was
    with pytest.raises(StoreReplaced):
        repair(root)
    assert {root / path.relative_to(other): content for path, content in before.items()} == files_of(root)
