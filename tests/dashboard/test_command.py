"""``rmq dashboard``: where it listens, what it demands before others can reach it, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="rmq dashboard needs uvicorn")

from rmqclient import Message, Producer
from tests.support.stores import SMALL
from tests.workers.supervised import COMMAND, environment

LONG_S = 30


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Producer(tmp_path / "store", config=SMALL) as producer:
        producer.send(Message("orders", b"one"))
    return tmp_path / "store"


def test_it_prints_its_address_with_the_token_and_ends_by_a_signal_while_a_page_listens(store: Path) -> None:
    with running(store, "--listen", "127.0.0.1:0") as (child, address):
        token = address.partition("token=")[2]
        assert len(token) >= 40
        asked = urllib.request.Request(
            address.partition("/?")[0] + "/history", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(asked, timeout=LONG_S) as answer:
            assert "series" in json.load(answer)
        asked.full_url = address.partition("/?")[0] + "/live"
        with urllib.request.urlopen(asked, timeout=LONG_S) as events:
            assert events.readline().startswith(b"retry")
            child.send_signal(signal.SIGTERM)
            assert child.wait(LONG_S) == 0


def test_the_store_is_named_as_for_any_other_command_too(store: Path) -> None:
    with running_command("--store", str(store), "dashboard", "--listen", "127.0.0.1:0") as (_, address):
        assert "?token=" in address


def test_nobody_comes_in_by_the_bare_address(store: Path) -> None:
    with running(store, "--listen", "127.0.0.1:0") as (_, address):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(address.partition("?")[0], timeout=LONG_S)
        assert refused.value.code == 401
        refused.value.close()


def test_a_unix_socket_is_for_its_owner_alone_and_goes_with_the_command(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with running(store, "--uds", str(path)) as (child, _):
        assert path.stat().st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(LONG_S)
            client.connect(str(path))
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b" 401 " in client.recv(100)
        child.terminate()
        child.wait(LONG_S)
    assert not path.exists()


@pytest.mark.guarantee("G89")
def test_a_socket_takes_the_place_of_no_file_and_of_no_living_one(store: Path, tmp_path: Path) -> None:
    # Given a file, and the socket of a dashboard that runs
    path, taken = tmp_path / "socket", tmp_path / "settings.json"
    taken.write_text("mine")
    assert "another file" in _refusal(store, taken)
    assert taken.read_text() == "mine"
    with running(store, "--uds", str(path)) as (child, _):
        assert "another process" in _refusal(store, path)

        # When that one has lost the name to another one, and ends, then the socket of the other one stays
        path.unlink()
        with running(store, "--uds", str(path)):
            child.terminate()
            child.wait(LONG_S)
            assert path.is_socket()


def test_the_socket_of_a_killed_dashboard_is_replaced(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with running(store, "--uds", str(path)) as (child, _):
        child.kill()
        child.wait(LONG_S)
        assert path.is_socket()
        with running(store, "--uds", str(path)):
            assert path.is_socket()


def _refusal(store: Path, path: Path) -> str:
    command = [*COMMAND, "dashboard", str(store), "--uds", str(path)]
    refused = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=LONG_S, check=False)
    assert refused.returncode
    return refused.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--listen", "0.0.0.0:0"], "--token-file"),
        (["--listen", "8650"], "HOST:PORT"),
        (["--token-file", "short"], "16"),
    ],
)
def test_a_wrong_option_says_what_to_do(store: Path, tmp_path: Path, options: list[str], told: str) -> None:
    (tmp_path / "short").write_text("secret", encoding="utf-8")
    done = subprocess.run(
        [*COMMAND, "dashboard", str(store), *options],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    assert done.returncode == 2
    assert told in done.stderr


def test_a_taken_address_is_one_line(store: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [*COMMAND, "dashboard", str(store), "--listen", address]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=LONG_S, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"rmq: {address} cannot be listened on")
    assert done.stderr.count("\n") == 1


@contextmanager
def running(store: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with running_command("dashboard", str(store), *options) as started:
        yield started


@contextmanager
def running_command(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen([*COMMAND, *arguments], env=environment(), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child, child.stdout.readline().strip()
        finally:
            child.kill()
