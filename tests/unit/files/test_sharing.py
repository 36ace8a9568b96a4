"""Two users of one group share a store whose directory says so; a store of one user stays closed to the other."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, StoreConfig
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import open_store
from rmqclient.store.files.file_system import check_owner
from tests.workers.supervised import eventually

ALICE, BOB, GROUP = 61_500, 61_501, 61_600

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become two other users")


@pytest.fixture(scope="module")
def imported() -> None:
    """Everything that is imported late, which another user may not be able to read."""
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(2):
            send(Path(directory) / "store", "orders")
        handle_two(Path(directory) / "store")


@pytest.fixture
def place(imported: None) -> Iterator[Path]:
    """A directory that every user may enter, unlike those of pytest."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def made(place: Path, mode: int) -> Path:
    root = place / "store"
    root.mkdir()
    os.chown(root, ALICE, GROUP)
    root.chmod(mode)
    return root


def as_user(user: int, act: Callable[[], object]) -> str:
    """Run ``act`` in a process of another user, with the usual umask; return what it raised, empty for nothing."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([GROUP])
            os.setgid(user)
            os.setuid(user)
            os.umask(0o077)
            act()
        except BaseException as error:  # noqa: BLE001 - it is told to the parent
            told = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
            os.write(write, told.encode()[:60_000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as lines:
        said = lines.read()
    os.waitpid(child, 0)
    return said


def send(root: Path, topic: str) -> None:
    with Producer(root) as producer:
        producer.send(Message(topic, b"1", keys=["k"]))


def handle_two(root: Path) -> None:
    app = App()
    seen: list[str] = []

    @app.handler("orders", group="billing")
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.message_id)

    with open_store(root) as store:
        consumer = PushConsumer(store, app.handlers)
        consumer.start()
        eventually(lambda: len(seen) == 2, "both messages")
        consumer.close()
    assert len(set(seen)) == 2


@needs_root
def test_two_users_send_and_handle_in_a_store_that_is_shared(place: Path) -> None:
    root = made(place, 0o2770)
    assert as_user(ALICE, lambda: send(root, "orders")) == ""
    assert as_user(BOB, lambda: send(root, "orders")) == ""
    assert as_user(BOB, lambda: send(root, "of-bob")) == ""
    assert as_user(ALICE, lambda: handle_two(root)) == ""
    assert as_user(BOB, lambda: send(root, "of-bob")) == ""
    found = [each.lstat() for each in root.rglob("*")]
    assert {stat.S_IMODE(each.st_mode) for each in found if stat.S_ISREG(each.st_mode)} == {0o660}
    assert {stat.S_IMODE(each.st_mode) for each in found if stat.S_ISDIR(each.st_mode)} == {0o2770}
    assert {each.st_gid for each in found} == {GROUP}
    assert {each.st_uid for each in found} == {ALICE, BOB}


@needs_root
@pytest.mark.parametrize("mode", [0o700, 0o770, 0o2777])
def test_any_other_mode_leaves_files_to_their_owner(place: Path, mode: int) -> None:
    root = made(place, mode)
    assert as_user(ALICE, lambda: send(root, "orders")) == ""
    files = [each for each in root.rglob("*") if each.is_file()]
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    assert as_user(BOB, lambda: send(root, "orders")).startswith("StoreUnusable: ")


@needs_root
def test_another_user_is_told_the_owner_the_group_and_the_mode(place: Path) -> None:
    root = made(place, 0o700)
    said = as_user(BOB, lambda: send(root, "orders"))
    assert f"not readable and writable by this user, {BOB}: it belongs to user {ALICE} and group {GROUP}" in said
    assert "with mode 700; run as its owner, or share it with the group" in said


@needs_root
def test_a_file_of_a_user_outside_of_the_group_is_planted(place: Path) -> None:
    root = made(place, 0o2770)
    planted = root / "planted"
    planted.touch()
    for group, is_ours in ((GROUP, True), (BOB, False)):
        os.chown(planted, BOB, group)
        status = planted.stat()
        said = as_user(ALICE, lambda status=status: check_owner(planted, status))  # type: ignore[misc]
        assert said.startswith("" if is_ours else "StoreUnusable: ")
        assert bool(said) is not is_ours


@needs_root
@pytest.mark.guarantee("G89")
@pytest.mark.parametrize("mode", [0o700, 0o2770])
def test_what_root_makes_in_the_store_of_another_user_belongs_to_that_user(place: Path, mode: int) -> None:
    # Given a store of Alice that she has open or not
    root = made(place, mode)
    assert as_user(ALICE, lambda: send(root, "orders")) == ""

    # When root looks at it, sends to it, makes topics and new files there, and moves groups
    with Producer(root) as producer:
        for number in range(3):
            producer.send(Message("orders", bytes(1_000_000), keys=[str(number)]))
        producer.send("mails", b"", delay=3600)
        producer.create_topic("prices", 1, cleanup_policy="compact")
    with Admin(root) as admin:
        admin.clean()

    # Then each file and directory is Alice's, and she goes on
    strange = [path for path in (root, *root.rglob("*")) if path.stat().st_uid != ALICE]
    assert strange == []
    assert as_user(ALICE, lambda: send(root, "orders")) == ""


@needs_root
def test_a_send_of_root_beside_an_open_store_stops_nobody(place: Path) -> None:
    root = made(place, 0o700)
    read, write = os.pipe()
    answered, answer = os.pipe()

    def live_beside_root() -> None:
        with Producer(root, config=StoreConfig.small()) as producer:
            producer.send("orders", b"")
            os.write(write, b".")
            os.read(answered, 1)
            for _ in range(40):  # into the files that root has made meanwhile
                producer.send("orders", bytes(100_000))
                producer.send("mails", b"")

    ended: list[str] = []
    alice = threading.Thread(target=lambda: ended.append(as_user(ALICE, live_beside_root)))
    alice.start()
    os.read(read, 1)
    with Producer(root) as producer:
        producer.send("mails", b"")
        for _ in range(40):
            producer.send("orders", bytes(100_000))
    os.write(answer, b".")
    alice.join()
    assert ended == [""]
