"""``rmq dev`` as a real process, whose application is a file that changes on the disk."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.supervised import COMMAND, LONG_S, children_of, environment, eventually, rmq, runs

SHOP = """
import time
from pathlib import Path
from rmqclient import App, StoreConfig

app = App({root}config=StoreConfig.small())

@app.handler("orders", group="billing")
def bill(order: str) -> None:
    if order == "hang":
        {hang}
    if order == "fail":
        raise ValueError("no such customer")
    print("{version} " + order, flush=True)  # in one piece, beside what other threads say
"""


class Developed:
    """``rmq dev shop:app`` in a directory, and a person who saves ``shop.py`` there."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.log_path = directory / "log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "dev", "shop:app", *options],
                cwd=directory,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8")

    def shows(self, text: str, times: int = 1) -> None:
        eventually(lambda: self.log.count(text) >= times, f"{text!r} {times} times; shown:\n{self.log}")

    def end(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        finally:
            self.process.wait(LONG_S)


@pytest.fixture
def developed(tmp_path: Path) -> Iterator[Developed]:
    save(tmp_path, version="first")
    started = Developed(tmp_path)
    yield started
    started.end()


def save(directory: Path, version: str, root: str = '"./store", ', hang: str = "time.sleep(600)") -> None:
    """Save the application as most editors do: another file takes the place of the old one."""
    draft = directory / "shop.py.draft"
    draft.write_text(SHOP.format(root=root, version=version, hang=hang), encoding="utf-8")
    draft.replace(directory / "shop.py")


@pytest.mark.slow
@pytest.mark.guarantee("G70")
def test_each_save_runs_the_new_code_whatever_the_code_before_it_did(developed: Developed) -> None:
    directory = developed.directory
    store = str(directory / "store")

    # Given handlers that run, each message a line
    developed.shows("ready in")
    rmq("send", "orders", "one", "--store", store)
    developed.shows("first one")
    developed.shows("orders -> bill (billing)  ")

    # When the file is saved, then the new code handles the next message
    save(directory, version="second")
    developed.shows("changed: shop.py")
    developed.shows("ready in", times=2)
    rmq("send", "orders", "two", "--store", store)
    developed.shows("second two")

    # When a handler raises, then its traceback is shown without frames of the package, once
    rmq("send", "orders", "fail", "--store", store)
    developed.shows("attempt 1 of 17: ValueError: no such customer")
    developed.shows('raise ValueError("no such customer")')
    assert "caller.py" not in developed.log
    assert developed.log.count("Traceback") == 1

    # When a file is saved that cannot be parsed, then this is shown, and the next save is tried
    (directory / "shop.py").write_text("def bill(:\n", encoding="utf-8")
    developed.shows("SyntaxError")
    developed.shows("waiting for a change of a file")
    rmq("send", "orders", "three", "--store", store)
    save(directory, version="third")
    developed.shows("third three")

    # When a handler does not return, then it is killed for the next version, which gets its message
    rmq("send", "orders", "hang", "--store", store)
    eventually(lambda: '"in_flight": 0' not in rmq("group", "lag", "billing", "--store", store, "-o", "json"), "a call")
    save(directory, version="fourth", hang="pass")
    developed.shows("killed: it did not end by itself")
    developed.shows("fourth hang")

    # When Ctrl-C reaches both processes, then both end
    (handling,) = children_of(developed.process.pid)
    os.killpg(developed.process.pid, signal.SIGINT)
    assert developed.process.wait(LONG_S) == 0
    assert not runs(handling)


@pytest.mark.slow
@pytest.mark.guarantee("G70")
def test_handlers_end_with_the_process_that_started_them_and_their_store_is_wiped_by_the_next(tmp_path: Path) -> None:
    # Given a store that `rmq dev` chose by itself, with a message that fails
    save(tmp_path, version="first", root="")
    developed = Developed(tmp_path)
    try:
        developed.shows("made by rmq dev")
        store = str(tmp_path / ".rmq-dev")
        rmq("send", "orders", "fail", "--store", store)
        developed.shows("ValueError: no such customer")
        (handling,) = children_of(developed.process.pid)
    finally:
        developed.process.kill()
        developed.process.wait(LONG_S)

    # When the process that started the handlers is killed, then they end
    eventually(lambda: not runs(handling), "the end of the handlers")

    # And the next one wipes the store if it is asked to, and says what was in it
    again = Developed(tmp_path, "--wipe")
    try:
        again.shows(f"wiped {store}, with messages: ")
        again.shows("1 that wait for their time")
        again.shows("ready in")
    finally:
        again.end()


def test_a_target_that_is_not_there_is_an_error_at_once(tmp_path: Path) -> None:
    save(tmp_path, version="first")
    command = [*COMMAND, "dev", "shp:app"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=LONG_S, check=False
    )
    assert done.returncode == 2
    assert done.stderr.strip().endswith("did you mean shop?; or name the file: path/to/file.py:app")
