"""A reader who copies a page, block by block, sees what the page shows."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.docs.page import REPOSITORY
from tests.docs.sessions.session import Command, File, at_a_free_port, environment_of, follow, matches, run, steps_of
from tests.docs.sessions.terminal import Terminal
from tests.docs.sessions.walks import WALKS, skip_without

QUICK = "docs/start/tutorial.md"
"""The page that a quick run follows; the others are sweeps."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name, marks=() if name == QUICK else (pytest.mark.sweep, pytest.mark.slow))
        for name, page in WALKS.items()
    ],
)
def test_a_page_can_be_copied_into_an_empty_directory(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    skip_without(text)
    follow(steps_of(at_a_free_port(text)), tmp_path, environment_of(REPOSITORY))


def test_an_ellipsis_stands_for_the_rest_of_a_line_or_for_lines() -> None:
    assert matches(Command("", "sent 7F...\n...\nend\n"), "head\nsent 7F00\nbetween\nend\n")
    assert not matches(Command("", "sent 7F...\nend\n"), "sent 7F00\nbetween\nend\n")
    assert matches(Command("", "first\nsecond\n", is_interrupted=True), "second\nbetween\nfirst\n")
    assert not matches(Command("", "first\nsecond\n", is_interrupted=True), "second\n")


def test_a_session_stops_where_the_page_says_something_else(tmp_path: Path) -> None:
    (step,) = steps_of("```console\n$ echo one\ntwo\n```\n")
    assert isinstance(step, Command)
    with pytest.raises(AssertionError, match="and the page says\ntwo"):
        run(step, tmp_path, environment_of(REPOSITORY))


def test_a_command_goes_on_beside_the_others_until_it_is_brought_back(tmp_path: Path) -> None:
    page = """
before
<!-- a session: it needs bash -->
```python
# names/first.txt
```
```python
# names/first.txt, at its end
second
```
```console
$ tail -n +2 -f names/first.txt names/again.txt &     # ends at Ctrl-C
# names/first.txt, at its end
$ echo third >> names/first.txt
$ fg
...
third
^C
```
<!-- the session ends -->
```console
$ false
```
"""
    steps = list(steps_of(page))
    assert [type(step) for step in steps] == [File, File, Command, Command, Command]
    follow(steps, tmp_path, environment_of(REPOSITORY))


def test_ctrl_c_reaches_a_command_of_tests_that_run_in_the_background(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        terminal = Terminal("echo ready; exec sleep 600", tmp_path, os.environ)
    finally:
        signal.signal(signal.SIGINT, before)
    with terminal:
        terminal.wait_for(lambda printed: "ready" in printed)
        terminal.interrupt()
        assert terminal.end() == -signal.SIGINT
