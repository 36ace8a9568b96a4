"""A server of a test's own: started, killed, started again, and never left behind."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rmqclient.testing import Server, ServerFailed, serve

TOP = Path(__file__).parents[3]
ENDS_S = 30.0

CHILD = """
import sys
from rmqclient.testing import serve
with serve() as server:
    print(server.pid, server.root, flush=True)
    sys.stdin.read()
"""


def test_clients_can_come_when_the_block_begins_and_nothing_is_left_when_it_ends() -> None:
    with serve() as server:
        host, _, port = server.address.rpartition(":")
        socket.create_connection((host, int(port)), ENDS_S).close()
        assert server.url == f"rocketmq://{server.address}"
        assert (server.root / "store.json").exists()
        assert server.is_running
        left = server.root
    assert not server.is_running
    assert not left.parent.exists()
    with pytest.raises(OSError):
        socket.create_connection((host, int(port)), ENDS_S)


def test_a_server_that_was_killed_comes_back_on_its_port_with_its_store(tmp_path: Path) -> None:
    with serve(tmp_path / "store") as server:
        address, first = server.address, server.pid
        server.kill()
        assert not server.is_running
        server.kill()
        server.restart()
        assert (server.address, server.root) == (address, tmp_path / "store")
        assert server.pid != first
        server.stop()
        server.stop()
        assert not server.is_running
    assert (tmp_path / "store").is_dir()
    assert not (tmp_path / "store" / "abort").exists()


def test_nobody_else_gets_the_port_of_a_server_that_is_down(tmp_path: Path) -> None:
    with serve(tmp_path / "store") as server:
        host, _, port = server.address.rpartition(":")
        server.kill()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((host, int(port)))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), ENDS_S)
        server.start()
        socket.create_connection((host, int(port)), ENDS_S).close()


def test_a_server_dies_with_the_process_that_started_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], env=os.environ | {"PYTHONPATH": str(TOP)}, stdin=-1, stdout=-1, text=True
    ) as child:
        assert child.stdout is not None
        pid, root = child.stdout.readline().split()
        descriptor = os.pidfd_open(int(pid))
        try:
            child.kill()
            waiting = select.poll()
            waiting.register(descriptor, select.POLLIN)
            assert waiting.poll(ENDS_S * 1000), "the server goes on without its parent"
        finally:
            os.close(descriptor)
    shutil.rmtree(Path(root).parent)


def test_a_server_that_cannot_start_says_what_it_printed(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerFailed, match=r"ended with 2 before it was ready:\n(.*\n)*.*No such option"),
        serve(tmp_path / "store", "--never-heard-of"),
    ):
        pass


def test_the_fixture_is_a_server_for_one_test(tmp_path: Path) -> None:
    test = tmp_path / "test_with_a_broker.py"
    test.write_text("def test_it(rmq_broker):\n    assert rmq_broker.is_running and rmq_broker.url\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "rmqclient.testing.plugin",
        "-p",
        "no:cacheprovider",
        str(test),
    ]
    alone = {"PYTHONPATH": str(TOP), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # where it is installed it comes by itself
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_pytest_imports_no_more_than_the_plugin_until_a_test_wants_the_fixture() -> None:
    program = "import sys, rmqclient.testing.plugin; print(*(name for name in sys.modules if 'rmqclient' in name))"
    command, environment = [sys.executable, "-c", program], os.environ | {"PYTHONPATH": str(TOP)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"rmqclient", "rmqclient.testing", "rmqclient.testing.plugin"}


def test_what_was_never_started_has_no_process(tmp_path: Path) -> None:
    server = Server(tmp_path / "store", tmp_path / "log", ())
    server.kill()
    server.stop()
    with pytest.raises(ServerFailed, match="never started"):
        _ = server.pid
