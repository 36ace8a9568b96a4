"""How a user names a cluster, and that a directory needs nothing of the network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqclient import App
from rmqclient.place import located, shown
from rmqclient.workers.cli import rmq

URL = "rocketmq://127.0.0.1:9876"
OF_THE_NETWORK = ("rmqclient.cluster", "rmqclient.remoting", "ssl")


def test_a_url_stays_as_it_is_and_a_directory_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert located(URL) == URL
    assert located("store") == tmp_path / "store"


def test_an_application_names_a_cluster_by_its_argument_or_by_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQ_STORE", URL)
    assert App().root == URL
    assert App("rocketmq://other:9876").root == "rocketmq://other:9876"


def test_a_secret_is_never_shown() -> None:
    url = "rocketmq://key:s3cret@127.0.0.1:9876/shop"
    assert shown(url) == "rocketmq://127.0.0.1:9876/shop"
    assert "s3cret" not in repr(App(url))


@pytest.mark.parametrize(
    "program",
    [
        "import rmqclient",
        "from rmqclient import Message, Producer\nwith Producer('store') as p: p.send(Message('orders', b''))",
        "from rmqclient import PullConsumer, App\nApp('rocketmq://host:9876')",
    ],
)
def test_nothing_of_the_network_is_imported_before_a_url_is_opened(tmp_path: Path, program: str) -> None:
    program += "\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert "rmqclient" in done.stdout.split()
    assert [name for name in done.stdout.split() if name.startswith(OF_THE_NETWORK)] == []


def test_a_command_that_needs_a_store_says_so_in_one_line() -> None:
    done = CliRunner().invoke(rmq, ["schedule", "ls", "--store", "rocketmq://key:s3cret@127.0.0.1:9876"])
    assert done.exit_code == 1
    assert done.stderr == (
        "rmq: rocketmq://127.0.0.1:9876 is a cluster, whose brokers do not tell messages that wait for a time: "
        "name a directory\n"
    )
