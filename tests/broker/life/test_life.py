"""The life of a server process: ready, draining, ending; its addresses; and stores that end with it."""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from rmqclient.broker.life.ephemeral import ephemeral_root
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from tests.broker.access.signing import sent_to
from tests.broker.life.serving import address_of, refused, serving
from tests.broker.net.loopback import PATIENCE_S, caller

CLUSTER = RequestCode.GET_BROKER_CLUSTER_INFO


def test_it_prints_one_line_when_clients_can_come_and_ends_when_it_is_told(tmp_path: Path) -> None:
    with serving(tmp_path, str(tmp_path / "store")) as server, caller(server.address) as client:
        assert server.ready == {"name_server": f"127.0.0.1:{server.address.port}", "pid": server.process.pid}
        assert client.ask(Frame(CLUSTER)).code == 0
        server.process.send_signal(signal.SIGTERM)
        assert client.receive() is None
        assert server.ended() == 0
    assert not (tmp_path / "store" / "abort").exists()


def test_it_listens_on_several_addresses_and_says_all_of_them(tmp_path: Path) -> None:
    with serving(tmp_path, str(tmp_path / "store"), "--listen", "127.0.0.2:0") as server:
        assert [address_of(text).host for text in server.ready["listens"]] == ["127.0.0.2", "127.0.0.1"]
        for text in server.ready["listens"]:
            with caller(address_of(text)) as client:
                assert client.ask(Frame(CLUSTER)).code == 0


def test_what_was_read_is_answered_before_it_ends(tmp_path: Path) -> None:
    with serving(tmp_path, str(tmp_path / "store")) as server, caller(server.address) as client:
        client.ask(Frame(CLUSTER))
        client.send(*(Frame(CLUSTER, opaque=number) for number in range(2_000)))
        first = client.receive()
        server.process.send_signal(signal.SIGTERM)
        answers = [first]
        while (answer := client.receive()) is not None:
            answers.append(answer)
        assert server.ended() == 0
    # Then the answers are those of the first requests, each whole
    assert [answer.opaque for answer in answers if answer] == list(range(len(answers)))


def test_a_client_that_reads_nothing_does_not_keep_it_longer_than_it_waits(tmp_path: Path) -> None:
    with serving(tmp_path, str(tmp_path / "store")) as server, caller(server.address) as client:
        client.ask(Frame(CLUSTER))
        client.sock.settimeout(0.5)
        many = [Frame(CLUSTER, opaque=number) for number in range(1_000)]
        with suppress(TimeoutError):
            while True:
                client.send(*many)
        server.process.send_signal(signal.SIGTERM)
        # A second signal does not wait at all
        server.process.send_signal(signal.SIGINT)
        assert server.ended() == 0


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        printed = refused(str(tmp_path / "store"), "--listen", f"127.0.0.1:{port}")
    assert f"127.0.0.1:{port}" in printed


def test_an_open_address_is_warned_of_and_loopback_is_not(tmp_path: Path) -> None:
    with serving(tmp_path, str(tmp_path / "store")) as server:
        assert server.log == ""
    with serving(tmp_path, str(tmp_path / "store"), listen="0.0.0.0:0") as server:
        assert server.log.count("\n") == 1
        assert "any client may" in server.log


def test_an_ephemeral_store_goes_with_its_server_and_that_of_a_killed_one_with_the_next(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with ephemeral_root((place,)) as root:
        (root / "store").mkdir()
        # Given one that was killed, of which the system has taken the lock
        left = place / "rmq-ephemeral-left"
        (left / "store").mkdir(parents=True)
        (place / "rmq-ephemeral-link").symlink_to(tmp_path)
        with ephemeral_root((place,)) as other:
            # Then the next server removes it, and neither that of a living one nor anything else
            assert {path.name for path in place.iterdir()} == {root.name, other.name, "rmq-ephemeral-link"}
            assert (root / "store").is_dir()
    assert [path.name for path in place.iterdir()] == ["rmq-ephemeral-link"]
    assert tmp_path.is_dir()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_ephemeral_server_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, "--ephemeral", TMPDIR=str(tmp_path)) as server:
        mine = root_of(server.process.pid)
        assert (mine / "store" / "store.json").exists()
        server.process.send_signal(number)
        server.ended()
    if number == signal.SIGKILL:
        with serving(tmp_path, "--ephemeral", TMPDIR=str(tmp_path)):  # or an earlier one, of anybody on this machine
            assert not mine.exists()
    assert not mine.exists()


def root_of(pid: int) -> Path:
    """Return the directory of an ephemeral server: it has that open, and locked."""
    opened = set[Path]()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            opened.add(descriptor.readlink())
    (root,) = (path for path in opened if path.name.startswith("rmq-ephemeral-"))
    return root


def test_requests_fail_as_often_as_a_test_wants(tmp_path: Path) -> None:
    with serving(tmp_path, "--ephemeral", "--fail", "106:2:2") as server, caller(server.address) as client:
        assert [client.ask(Frame(CLUSTER)).code for _ in range(3)] == [ResponseCode.SYSTEM_BUSY] * 2 + [0]
        # And a running server is told by request 25
        assert client.ask(Frame(RequestCode.UPDATE_BROKER_CONFIG, body=b"failNext=106:1:14")).code == 0
        assert [client.ask(Frame(CLUSTER)).code for _ in range(2)] == [ResponseCode.SERVICE_NOT_AVAILABLE, 0]
        wrong = client.ask(Frame(RequestCode.UPDATE_BROKER_CONFIG, body=b"failNext=106"))
        assert "CODE:TIMES:ANSWER" in (wrong.remark or "")
        assert client.ask(Frame(CLUSTER)).code == 0


def test_a_store_that_stays_cannot_be_told_to_fail(tmp_path: Path) -> None:
    assert "--ephemeral" in refused(str(tmp_path / "store"), "--fail", "310:1:2")
    assert "CODE:TIMES:ANSWER" in refused("--ephemeral", "--fail", "310")
    with serving(tmp_path, str(tmp_path / "store")) as server, caller(server.address) as client:
        client.ask(Frame(RequestCode.UPDATE_BROKER_CONFIG, body=b"failNext=106:1:14"))
        assert client.ask(Frame(CLUSTER)).code == 0


def test_a_server_that_only_reads_refuses_a_send(tmp_path: Path) -> None:
    with serving(tmp_path, str(tmp_path / "store"), "--read-only") as server, caller(server.address) as client:
        answer = client.ask(sent_to("orders"))
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "--read-only" in (answer.remark or "")
        assert client.ask(Frame(CLUSTER)).code == 0


def test_a_server_dies_with_the_process_that_started_it_even_if_a_thread_of_it_ended_before(tmp_path: Path) -> None:
    started: list[object] = []

    def start() -> None:
        context = serving(tmp_path, str(tmp_path / "store"), "--die-with-parent")
        started.extend((context, context.__enter__()))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join(PATIENCE_S)
    context, server = started
    with caller(server.address) as client:  # type: ignore[attr-defined]
        assert client.ask(Frame(CLUSTER)).code == 0
    context.__exit__(None, None, None)  # type: ignore[attr-defined]
