"""The process of a client: known by the connection that it has open, and never by its number alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from rmqclient.broker.address import Address
from rmqclient.broker.clients.process import process_of

CONNECTS = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); input()"


def peer_at(host: str, port: int) -> Any:
    return SimpleNamespace(remote=Address(host, port))


def test_a_client_of_this_host_is_the_process_at_the_other_end_until_it_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = subprocess.Popen([sys.executable, "-c", CONNECTS, str(server.getsockname()[1])], stdin=subprocess.PIPE)
        with client, server.accept()[0] as connection:
            peer = peer_at(*connection.getpeername())
            process = process_of(f"10.0.0.7@{client.pid}#1", peer)
            assert process is not None
            assert not process.has_ended

            # One whose number is counted elsewhere has the number of somebody else here, or of nobody
            assert process_of(f"10.0.0.7@{os.getppid()}#1", peer) is None
            assert process_of("10.0.0.7@4194305#1", peer) is None

            client.communicate(b"\n")
            assert process.has_ended
            assert process._replace(pid=os.getpid()).has_ended, "another one has its number"


@pytest.mark.parametrize("client_id", ["10.0.0.7", "10.0.0.7@", "10.0.0.7@app#1", "10.0.0.7@\u0663#1"])
def test_an_id_without_a_number_names_no_process(client_id: str) -> None:
    assert process_of(client_id, peer_at("127.0.0.1", 1)) is None


def test_a_client_of_another_host_has_no_process_here() -> None:
    assert process_of(f"10.0.0.7@{os.getpid()}#1", peer_at("10.0.0.7", 1)) is None
