"""Fork: a child cannot use the connections of its parent, nor keep them open, and makes its own."""

from __future__ import annotations

import os
import socket
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.net import io_thread
from rmqclient.errors import StoreClosed
from tests.cluster.net.conftest import question
from tests.support.cluster.raw_peer import echo, raw_peer

URL = ClusterURL.parse("rocketmq://127.0.0.1:9")


def in_a_child(run: Callable[[], bool]) -> int:
    """Return the process id of a forked child that ends with 0 if ``run`` returns True."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if run() else 2
        except BaseException:  # noqa: BLE001 - a child must not go on with the tests
            traceback.print_exc()
        os._exit(code)
    return pid


def ended_well(pid: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_child_is_refused_and_the_parent_goes_on() -> None:
    client = ClusterClient(URL)

    def refused() -> bool:
        for use in (client.call, client.tell):
            with suppress(StoreClosed):
                use(peer.address, question())
                return False
        client.close()
        return True

    with raw_peer(echo) as peer:
        assert client.call(peer.address, question(b"before")).body == b"before"
        assert ended_well(in_a_child(refused))
        assert client.call(peer.address, question(b"after")).body == b"after"
        assert len(peer.sockets) == 1
        client.close()


def test_a_child_makes_a_client_of_its_own() -> None:
    client = ClusterClient(URL)

    def ask_anew() -> bool:
        own = ClusterClient(URL)
        answer = own.call(peer.address, question(b"of the child"))
        own.close()
        return answer.body == b"of the child" and own.client_id != client.client_id

    with raw_peer(echo) as peer:
        client.call(peer.address, question())
        assert ended_well(in_a_child(ask_anew))
        assert client.call(peer.address, question(b"after")).body == b"after"
        client.close()


def test_a_connection_ends_with_the_parent_though_a_child_lives() -> None:
    client = ClusterClient(URL)
    leave, stay = os.pipe()

    def live_on() -> bool:
        os.close(stay)
        os.read(leave, 1)
        return True

    hung_up = threading.Event()

    def serve(accepted: socket.socket) -> None:
        echo(accepted)  # until the connection has ended in every process
        hung_up.set()

    with raw_peer(serve) as peer:
        client.call(peer.address, question())
        pid = in_a_child(live_on)
        client.close()
        assert hung_up.wait(10)
        os.close(stay)
        os.close(leave)
        assert ended_well(pid)


def test_a_child_keeps_its_files_when_the_thread_of_the_parent_had_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a file that has got the descriptor of the ended thread's bell, whatever other tests have left
    monkeypatch.setattr(io_thread, "_shared", None)
    thread = io_thread.acquire()
    bell = thread._bell
    io_thread.release(thread)
    taken = [os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)]
    while taken[-1] < bell:
        taken.append(os.dup(taken[0]))

    # When a child is forked, then it has the file open
    def has_it_open() -> bool:
        return os.write(bell, b"mine") == 4

    assert ended_well(in_a_child(has_it_open))
    for descriptor in taken:
        os.close(descriptor)
