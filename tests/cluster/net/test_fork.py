"""Fork: a child cannot use the connections of its parent, nor keep them open, and makes its own."""

from __future__ import annotations

import os
import socket
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress

from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.net.io_thread import acquire, release
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


def test_a_thread_that_has_ended_closes_nothing_of_a_child() -> None:
    # Given a thread that has ended, and files that have the numbers of its descriptors
    ended = acquire()
    release(ended)
    pipes = [os.pipe() for _ in range(4)]
    files = [number for pipe in pipes for number in pipe]

    def all_are_open() -> bool:
        return all(os.fstat(number) for number in files)

    # When the process forks, Then its child has all of them
    assert ended_well(in_a_child(all_are_open))
    for number in files:
        os.close(number)
    assert ended is not None
