"""Flushes: a server that answers when messages are on the disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import ONEWAY
from rmqclient.remoting.table import request
from rmqclient.store import MessageStore, open_store
from rmqclient.store.wire import parse_offset_id
from rmqclient.testing import Server, serve
from tests.broker.producers.connected import stored
from tests.broker.sending.sends import ONES, send_of
from tests.support.cluster.caller import connected


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", housekeeping=False) as found:
        yield found


@pytest.fixture
def server(store: MessageStore) -> Iterator[Server]:
    with serve(store.root, "--sync") as found:
        yield found


def flushed_to(store: MessageStore, message_id: str) -> bool:
    """Whether a message is on the disk."""
    offset = parse_offset_id(message_id).commit_log_offset
    return store.state.flushed_to >= offset + store.messages.read(offset).size


def test_a_message_is_on_the_disk_when_its_answer_comes(server: Server, store: MessageStore) -> None:
    with connected(server.address) as caller:
        for number in range(20):
            answer = stored(caller, send_of(str(number).encode()))
            assert flushed_to(store, answer.fields["msgId"])


def test_many_clients_share_flushes(server: Server, store: MessageStore) -> None:
    with connected(server.address) as caller:
        stored(caller, send_of())
        for number in range(200):
            caller.send(dataclasses.replace(send_of(b"x"), opaque=number))
        answers = [caller.receive() for _ in range(200)]
    assert {answer.opaque for answer in answers} == set(range(200))
    assert all(answer.code == 0 for answer in answers)
    assert flushed_to(store, answers[-1].fields["msgId"])


def test_a_client_may_not_care(server: Server) -> None:
    with connected(server.address) as caller:
        for properties in ({**ONES, "WAIT": "false"}, {**ONES, "WAIT": "false", "DELAY": "3"}):
            assert stored(caller, send_of(properties=properties)).fields["msgId"]


def test_a_oneway_message_is_stored_and_not_answered(server: Server, store: MessageStore) -> None:
    with connected(server.address) as caller:
        stored(caller, send_of())
        caller.send(dataclasses.replace(send_of(b"oneway"), opaque=7, flag=ONEWAY))
        assert stored(caller, send_of(b"after")).opaque != 7
    queue = store.topics.queues("orders")[1]
    assert [store.messages.at(queue, number).body for number in range(3)] == [b"hello", b"oneway", b"after"]


def test_a_message_that_is_given_back_waits_for_the_disk_too(server: Server, store: MessageStore) -> None:
    with connected(server.address) as caller:
        offset = parse_offset_id(stored(caller, send_of()).fields["msgId"]).commit_log_offset
        end = store.state.published_to
        stored(caller, request(RequestCode.CONSUMER_SEND_MSG_BACK, offset=offset, group="billing", delayLevel=0))
    assert store.state.published_to > end
    assert store.state.flushed_to == store.state.published_to


def test_a_server_ends_at_once_after_its_answers(server: Server) -> None:
    with connected(server.address) as caller:
        stored(caller, send_of())
        server.stop()
    assert not server.is_running
