"""``rmq check``, ``top`` and ``doctor``: each names what is wrong in a store that was broken in six ways."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tarfile
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.admin import Admin
from rmqclient.codecs import encode_body
from rmqclient.health import findings, report
from rmqclient.store import MessageStore, boottime, open_store
from rmqclient.store.observe.reading import Reading
from tests.workers.commands.test_cli import data, run
from tests.workers.supervised import COMMAND, environment

BROKEN = {
    "a group is paused": "paused",
    "nobody consumes a group": "no members",
    "a group is behind retention": "behind retention: 3 lost",
    "messages were given up": "2 dead letters",
    "a flush failed": "poisoned: a flush failed with EIO",
    "a handler hangs": r"hung \d",
}
"""Patterns of what commands say of each."""

HUNG_S = 20  # nothing began before the host did, and the host may be up for a minute
HANGS_AFTER = {"RMQ_CHECK_MESSAGE_AGE": "15s", "RMQ_TOP_MESSAGE_AGE": "15s"}


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MessageStore]:
    """A store in which six things are wrong at once."""
    for name, limit in HANGS_AFTER.items():
        monkeypatch.setenv(name, limit)
    with open_store(tmp_path / "store") as store, Producer(store) as producer, Admin(store) as admin:
        for topic in ("paused", "alone", "late"):
            producer.create_topic(topic, 1)
            for number in range(5):
                producer.send(Message(topic, b"secret-%d" % number, keys=["secret-key"]))
            admin.seek(f"{topic}-group", topic, "earliest")
        admin.pause("paused-group")
        (late,) = store.topics.queues("late")
        store.topics.raise_min_offset(late, 3)
        letters = store.appenders.make(lambda topic: store.topics.create(topic, 1), encode_body)
        for _ in range(2):
            letters.append(Message("%DLQ%late-group", b"secret"))
        hang(store)
        store.state.poisoned = 5
        yield store
        store.state.poisoned = 0


def hang(store: MessageStore) -> None:
    """Fill a worker's slot as a worker does whose handler began a while ago."""
    workers = store.workers()
    slot = workers.claim()
    workers.assign(slot, os.getpid())
    at = workers.attach(slot)
    at.beat()
    at.report(1, 0, 0, boottime() - HUNG_S * 10**9)


def test_a_person_who_has_read_the_help_alone_finds_what_is_stuck_and_what_to_do(broken: MessageStore) -> None:
    # Given the first screen of the help
    first_screen = "\n".join(run("--help").stdout.splitlines()[:24])
    named = re.findall(r"\brmq ([a-z]+)\b", first_screen)
    assert "--store DIRECTORY" in first_screen

    # When the commands that it names are run on a terminal
    shown = {name: on_a_terminal("--store", str(broken.root), name) for name in named}

    # Then two of them name each trouble, and what helps is a command of ours; the third shows those of the moment
    for trouble in BROKEN.values():
        assert re.search(trouble, shown["doctor"])
        remedies = [line.partition("->")[2] for line in shown["check"].splitlines() if re.search(trouble, line)]
        assert any("rmq " in remedy for remedy in remedies), trouble
    assert all(text in shown["top"] for text in ("paused", "no members", "behind retention: 3 lost", "hung "))
    assert "POISONED" in shown["top"]


def on_a_terminal(*arguments: str) -> str:
    """Run a command on a terminal, where somebody presses q at whatever it shows; return all that it showed."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 240, 0, 0))
    sizes = {name: value for name, value in environment(**HANGS_AFTER).items() if name not in ("COLUMNS", "LINES")}
    child = subprocess.Popen([*COMMAND, *arguments], stdin=slave, stdout=slave, stderr=slave, env=sizes)
    os.close(slave)
    written = b""
    with os.fdopen(master, "r+b", buffering=0) as terminal, contextlib.suppress(OSError):  # EIO: it has ended
        while part := terminal.read(65_536):
            written += part
            terminal.write(b"q")
    child.wait(60)
    return re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", written.decode())


def test_check_names_each_of_six_troubles_and_what_to_do(broken: MessageStore) -> None:
    done = subprocess.run(
        [*COMMAND, "check", "--store", str(broken.root)],
        env=environment(**HANGS_AFTER),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    for state in BROKEN.values():
        lines = [line for line in done.stdout.splitlines() if re.search(state, line)]
        assert lines, state
        assert all("->" in line for line in lines), "it says what to do"


def test_top_names_what_groups_and_workers_suffer_from(broken: MessageStore) -> None:
    top = ("top", "--once", "--interval", "10ms", "--store", str(broken.root))
    found = json.loads(run(*top, "-o", "json").stdout)
    states = {group["group"]: group["state"] for group in found["groups"]}
    assert states["paused-group"] == "paused, no members"
    assert states["alone-group"] == "no members"
    assert states["late-group"] == "behind retention: 3 lost"
    assert {group["group"]: group["dead_letters"] for group in found["groups"]}["late-group"] == 2
    assert found["poisoned"] == 5
    assert found["workers"][0]["state"].startswith("hung ")
    shown = run(*top).stdout
    assert "POISONED" in shown
    assert "hung " in shown


@pytest.mark.guarantee("G56")
def test_doctor_names_each_of_them_and_leaves_bodies_out_of_a_bundle(broken: MessageStore, tmp_path: Path) -> None:
    bundle = tmp_path / "report.tar.gz"
    given: dict[str, str | None] = {"RMQ_NOTHING": "1", "RMQ_CHECK_WARM": "5", "RMQ_CHECK_CRIT": "5"}
    result = run("doctor", "--bundle", str(bundle), "--store", str(broken.root), stdin=None, **given)
    assert result.exit_code == 1
    for state in BROKEN.values():
        assert re.search(state, result.stdout)
    assert [name for name in given if name in result.stdout] == ["RMQ_NOTHING", "RMQ_CHECK_WARM"]
    assert "is RMQ_CHECK_WARN meant?" in result.stdout
    with tarfile.open(bundle) as archive:
        parts = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    assert {"rmq-doctor/doctor.json", "rmq-doctor/health.json", "rmq-doctor/files.txt"} <= parts.keys()
    assert not [name for name, content in parts.items() if b"secret" in content]


def test_bodies_are_in_a_bundle_when_they_are_asked_for(tmp_path: Path) -> None:
    store, bundle = str(tmp_path / "store"), tmp_path / "report.tar.gz"
    assert run("send", "orders", "secret", "--store", store).exit_code == 0
    run("doctor", "--bundle", str(bundle), "--with-bodies", "--store", store)
    with tarfile.open(bundle) as archive:
        messages = archive.extractfile("rmq-doctor/messages.jsonl")
        assert messages is not None
        assert b"secret" in messages.read()


def test_a_bundle_says_of_a_store_without_workers_what_doctor_says(tmp_path: Path) -> None:
    store, bundle = str(tmp_path / "store"), tmp_path / "report.tar.gz"
    assert run("send", "orders", "one", "--store", store).exit_code == 0
    run("doctor", "--bundle", str(bundle), "--store", store)
    with tarfile.open(bundle) as archive:
        parts = [archive.extractfile(f"rmq-doctor/{name}.json") for name in ("doctor", "health")]
        doctor, health = (json.loads(part.read()) for part in parts if part is not None)
    said = {row["subject"]: row["found"] for row in doctor}
    assert [each["state"] for each in health["findings"] if each["check"] == "workers"] == [said["workers"]]


def test_doctor_names_what_is_installed_beside_the_library(tmp_path: Path) -> None:
    (line,) = [line for line in run("doctor", "-v", "--store", str(tmp_path)).stdout.splitlines() if " extras " in line]
    for name in ("starlette", "uvicorn", "opentelemetry-api", "prometheus-client"):
        assert f"{name} {importlib.metadata.version(name)}" in line
    assert "ruff" not in line, "that is for who changes the library"


@pytest.mark.guarantee("G55")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-o", "nagios", "--min-ready", "0"], 1, "RMQ WARNING - housekeeper none"),
        (["-o", "nagios"], 2, "RMQ CRITICAL - workers 0 of 1 workers are ready"),
        (["-o", "nagios", "--group", "nobody", "--min-ready", "0"], 1, "no group nobody ever consumed"),
        (["-o", "json", "--min-ready", "0"], 0, '"status": "warning"'),
        (["-o", "prometheus"], 1, 'rmq_check_status{check="workers",subject=""} 2'),
        (["ready"], 1, "0 of 1 workers are ready"),
        (["live"], 1, "no supervisor runs here"),
        (["--min-ready", "many"], 2, ""),
    ],
)
def test_check_answers_people_nagios_prometheus_and_kubernetes(
    tmp_path: Path, arguments: list[str], code: int, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with open_store(tmp_path):
        pass
    result = run("check", *arguments, "--store", str(tmp_path))
    assert (result.exit_code, words in result.stdout) == (code, True), result.output


@pytest.mark.guarantee("G55")
def test_check_of_what_cannot_be_looked_at_is_3(tmp_path: Path) -> None:
    for store in (str(tmp_path), "rocketmq://127.0.0.1:9876"):
        result = run("check", "--store", store)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (3, "", 1)
    assert run("check", "-o", "nagios", "--store", str(tmp_path)).exit_code == 3


def test_check_is_quick_because_it_imports_neither_click_nor_the_store(tmp_path: Path) -> None:
    with open_store(tmp_path):
        pass
    program = (
        "import sys; sys.argv = ['rmq', 'check', '--min-ready', '0', '--store', sys.argv[1]]\n"
        "from rmqclient.workers.entry import main\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env=environment(), capture_output=True, text=True, check=True
    )
    modules = done.stderr.split()
    assert {"click", "pathlib", "dataclasses", "rmqclient.store.kernel", "rmqclient.workers.cli"}.isdisjoint(modules)
    assert len(modules) < 130, "each module costs a third of a millisecond at every look; bare Python has some 30"


def test_bench_measures_both_ways_and_leaves_nothing(tmp_path: Path) -> None:
    found = data(run("bench", "--messages", "50", "--directory", str(tmp_path / "try"), "-o", "json"))
    assert isinstance(found, list)
    assert [row["what"] for row in found] == ["send", "handle"]
    assert list(tmp_path.iterdir()) == []


def test_check_names_the_topic_that_members_wait_for_until_it_is_made(tmp_path: Path) -> None:
    app = App(tmp_path / "store")

    @app.handler("ordres", group="billing")
    def handle(_message: ReceivedMessage) -> None:
        """Never called."""

    def found() -> list[dict[str, Any]]:
        with Reading(str(tmp_path / "store")) as reading:
            rows = [report.row(each) for each in findings.look(reading)]
        return [row for row in rows if row["check"] == "topic"]

    with app.running():
        (missing,) = found()
        assert (missing["subject"], missing["level"]) == ("billing", "warning")
        assert "ordres" in missing["state"]
        assert "rmq topic create ordres" in missing["remedy"]
        with Producer(tmp_path / "store") as producer:
            producer.create_topic("ordres", 1)
        assert found() == []


def test_check_warns_before_the_slots_run_out_and_is_critical_when_there_are_none(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", housekeeping=False) as store:
        levels = []
        for in_use in (0, 15_000, 16_384):
            store.state.group_queue_count = in_use
            with Reading(str(tmp_path / "store")) as reading:
                levels.append(findings.slots(reading).level)
        store.state.group_queue_count = 0
    assert levels == [findings.OK, findings.WARNING, findings.CRITICAL]
