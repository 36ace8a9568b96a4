"""Completion in a real bash: its script is read, and the function that it defines is asked as the Tab key does."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rmqclient import Message, Producer
from rmqclient.admin import Admin
from rmqclient.codecs import encode_body
from rmqclient.store import open_store
from tests.workers.commands.test_cli import run
from tests.workers.supervised import COMMAND, environment


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three topics, a group of two of them and one of the third, a dead letter, and a message that waits."""
    root = tmp_path_factory.mktemp("completion") / "store"
    with Producer(root) as producer, Admin(root) as admin:
        for topic in ("orders", "offers", "mails"):
            producer.create_topic(topic, 1)
        for group, topic in (("billing", "orders"), ("billing", "offers"), ("post", "mails")):
            admin.seek(group, topic, "earliest")
        producer.send(Message("mails", b"later"), delay=3_600)
    with open_store(root) as store:
        letters = store.appenders.make(lambda topic: store.topics.create(topic, 1), encode_body)
        letters.append(Message("%DLQ%billing", b"dead"))
    return root


def completed(line: str, root: Path) -> list[str]:
    """Return what bash offers at the end of a line."""
    words = " ".join(f"'{word}'" for word in line.split(" "))
    script = f"""
        eval "$(rmq completion bash)"
        COMP_WORDS=({words}); COMP_CWORD=$(({len(line.split(" "))} - 1))
        _rmq_completion rmq
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    program = root.parent / "rmq"
    program.write_text(f'#!/bin/sh\nexec {" ".join(map(str, COMMAND))} "$@"\n')
    program.chmod(0o755)
    variables = environment(RMQ_STORE=str(root), PATH=f"{root.parent}:{os.environ['PATH']}")
    done = subprocess.run(["bash", "-c", script], env=variables, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("rmq group se", ["seek"]),
        ("rmq topic info o", ["offers", "orders"]),
        ("rmq group lag ", ["billing", "post"]),
        ("rmq group seek billing ", ["offers", "orders"]),
        ("rmq group pause post ", ["mails"]),
        ("rmq group seek new ", ["mails", "offers", "orders"]),
        ("rmq dlq replay billing --topic o", ["offers", "orders"]),
        ("rmq check --group b", ["billing"]),
        ("rmq check --min", ["--min-ready"]),
        ("rmq check -o nag", ["nagios"]),
        ("rmq worker stack ", []),
    ],
)
def test_a_name_is_completed_by_those_that_fit_the_words_before(root: Path, line: str, names: list[str]) -> None:
    assert completed(line, root) == names


def test_ids_of_messages_are_completed_by_those_that_the_command_can_use(root: Path) -> None:
    letter = run("dlq", "ls", "billing", "-o", "json", "--query", "[].message_id | [0]", "--store", str(root)).stdout
    assert completed("rmq dlq show billing ", root) == [letter.strip().strip('"')]
    waiting = run("schedule", "ls", "-o", "json", "--query", "[].message_id | [0]", "--store", str(root)).stdout
    assert completed("rmq schedule cancel ", root) == [waiting.strip().strip('"')]


def test_no_key_press_recovers_a_store_after_a_kill(root: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    shutil.copytree(root, killed)
    (killed / "abort").touch()
    assert completed("rmq dlq show billing ", killed) == []
    assert (killed / "abort").exists(), "nobody has opened it"
    with open_store(killed):
        assert len(completed("rmq dlq show billing ", killed)) == 1, "it is open"


def test_the_store_of_the_settings_is_looked_at(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rmq.toml").write_text(f'store = "{root}"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RMQ_STORE", raising=False)
    done = subprocess.run(
        COMMAND,
        env=environment(_RMQ_COMPLETE="bash_complete", COMP_WORDS="rmq group lag p", COMP_CWORD="3"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["plain,post"]
