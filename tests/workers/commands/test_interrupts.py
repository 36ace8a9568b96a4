"""Ctrl-C at any moment of a command: it ends at once, by the signal or with 130, and shows no trace.

A finder of modules stands for the person: it sends the signal when a certain module is looked for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqclient.workers.cli import HOMES
from rmqclient.workers.exit_codes import ExitCode

COMMAND = Path(__file__).parents[3] / "workers" / "rmq"

INTERRUPTED = """\
import os, runpy, signal, sys

class Person:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)

wanted, sys.argv = sys.argv[1], sys.argv[2:]
sys.meta_path.insert(0, Person())
runpy.run_path(sys.argv[0], run_name="__main__")
"""

SHOP = "from rmqclient import App\napp = App('./store')\n@app.handler('orders', group='g')\ndef bill(order): ...\n"


def assert_ended_quietly(ended: subprocess.CompletedProcess[str], *codes: int) -> None:
    assert ended.returncode in (codes or (-signal.SIGINT, ExitCode.INTERRUPTED)), ended.stderr
    assert (ended.stdout, ended.stderr) == ("", "")


def python(code: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RMQ_")}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "module", ["rmqclient", "rmqclient.workers", "rmqclient.workers.entry", "rmqclient.workers.cli", "click"]
)
def test_its_first_imports_end_by_the_signal(module: str, tmp_path: Path) -> None:
    assert_ended_quietly(python(INTERRUPTED, module, str(COMMAND), "topic", "ls", cwd=tmp_path), -signal.SIGINT)


@pytest.mark.parametrize("name", HOMES)
def test_the_import_of_each_command_ends_by_the_signal(name: str, tmp_path: Path) -> None:
    module = f"rmqclient.workers.commands.{HOMES[name]}"
    assert_ended_quietly(python(INTERRUPTED, module, str(COMMAND), name, cwd=tmp_path))


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("rmqclient.sending.producer", ("send", "orders", "x", "--store", "./store")),
        ("shop", ("run", "shop:app")),
        ("rmqclient.workers.processes.supervisor", ("run", "shop:app")),
        ("rmqclient.workers.probe", ("check", "--store", "./store")),
        ("rmqclient.store", ("topic", "ls", "--store", "./store")),
    ],
    ids=" ".join,
)
def test_a_command_that_has_begun_ends_with_its_code_or_by_the_signal(
    module: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    assert_ended_quietly(python(INTERRUPTED, module, str(COMMAND), *arguments, cwd=tmp_path))


def test_an_interrupt_that_nobody_can_catch_ends_the_command() -> None:
    ended = python(
        "import os, signal\n"
        "from rmqclient.workers import interrupts\n"
        "class Closed:\n"
        "    def __del__(self): os.kill(os.getpid(), signal.SIGINT)\n"
        "interrupts.end_quietly()\n"
        "with interrupts.raised():\n"
        "    Closed()\n"
        "    print('goes on')"
    )
    assert_ended_quietly(ended, -signal.SIGINT)


def test_what_others_made_of_an_interrupt_is_one(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import os, signal\n"
        "class Field:\n"
        "    def __set_name__(self, owner, name): os.kill(os.getpid(), signal.SIGINT)\n"
        "class Order:\n"
        "    number = Field()\n"
    )
    ended = python(INTERRUPTED, "nothing", str(COMMAND), "run", "shop:app", cwd=tmp_path)
    assert_ended_quietly(ended, ExitCode.INTERRUPTED)


def test_the_second_interrupt_ends_a_command_that_still_closes_what_it_has_open() -> None:
    ended = python(
        "import os, signal\n"
        "from rmqclient.workers import interrupts\n"
        "interrupts.end_quietly()\n"
        "with interrupts.raised():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    except KeyboardInterrupt:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        print('goes on')"
    )
    assert_ended_quietly(ended, -signal.SIGINT)


def test_what_was_ignored_stays_ignored_and_an_application_keeps_its_own() -> None:
    ended = python(
        "import signal\n"
        "from rmqclient.workers import interrupts\n"
        "with interrupts.raised():\n"
        "    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "interrupts.end_quietly()\n"
        "with interrupts.raised():\n"
        "    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN"
    )
    assert_ended_quietly(ended, 0)
