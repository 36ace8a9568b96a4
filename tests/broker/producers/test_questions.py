"""Questions: a server asks remote producers about transactions that stay undecided."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request, request_fields
from rmqclient.store import MessageStore, ReceivedMessage, StoreConfig, TransactionConfig, open_store
from rmqclient.store.wire import decode_records, parse_offset_id
from rmqclient.testing import Server, serve
from tests.broker.producers.connected import producer, stored
from tests.broker.sending.sends import ONES, UNIQ_KEY, send_of
from tests.support.cluster.caller import Caller

HALF = {**ONES, "TRAN_MSG": "true", "PGROUP": "makers", "CHECK_IMMUNITY_TIME_IN_SECONDS": "0"}
QUICK = StoreConfig(transactions=TransactionConfig(timeout_ms=1, check_interval_ms=100, check_max=10_000))
COMMIT = 8


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """A store whose housekeeper, this process, looks for undecided transactions every 100 ms."""
    with open_store(tmp_path / "store", QUICK) as found:
        yield found


@pytest.fixture
def server(store: MessageStore) -> Iterator[Server]:
    with serve(store.root) as found:
        yield found


def begin(caller: Caller) -> Frame:
    return stored(caller, send_of(properties=HALF, sysFlag=4, queueId=3, bornTimestamp=time.time_ns() // 1_000_000))


def asked(frame: Frame) -> ReceivedMessage:
    assert frame.code == RequestCode.CHECK_TRANSACTION_STATE
    assert frame.is_oneway
    (half,) = decode_records(frame.body)
    return half


def decided(question: Frame) -> Frame:
    """Return the request by which Java's producer answers a question with "commit"."""
    fields = request_fields(question)
    return request(
        RequestCode.END_TRANSACTION,
        producerGroup="makers",
        tranStateTableOffset=fields["tranStateTableOffset"],
        commitLogOffset=fields["commitLogOffset"],
        commitOrRollback=COMMIT,
        fromTransactionCheck=True,
        msgId=fields["msgId"],
        transactionId=fields["transactionId"],
    )


def test_a_producer_is_asked_and_its_answer_decides(server: Server, store: MessageStore) -> None:
    with producer(server, "one") as caller:
        begin(caller)
        question = caller.receive()
        half = asked(question)
        assert (half.topic, half.queue_id, half.body, half.message_id) == ("orders", 3, b"hello", UNIQ_KEY)
        fields = request_fields(question)
        assert fields["tranStateTableOffset"] == half.queue_offset > 0
        assert fields["commitLogOffset"] == half.commit_log_offset
        assert (fields["msgId"], fields["transactionId"]) == (UNIQ_KEY, UNIQ_KEY)
        place = parse_offset_id(fields["offsetMsgId"])
        assert (place.address, place.commit_log_offset) == (server.address, half.commit_log_offset)
        caller.send(decided(question))
        while (answer := caller.receive()).code == RequestCode.CHECK_TRANSACTION_STATE:
            pass  # the next round came before the answer
        assert answer.code == 0
    (found,) = [store.messages.at(store.topics.queues("orders")[3], 0)]
    assert (found.body, found.message_id) == (b"hello", UNIQ_KEY)
    assert store.transactions.pending() == []


def test_the_producers_of_a_group_are_asked_in_turn(server: Server) -> None:
    with producer(server, "one") as one, producer(server, "two") as two, producer(server, "else", "others") as other:
        begin(one)
        for caller in (one, two, one, two):
            asked(caller.receive())
        assert other.ask(request(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)).is_response


def test_another_producer_is_asked_when_the_first_has_gone(server: Server) -> None:
    with producer(server, "one") as one:
        begin(one)
    with producer(server, "two") as two:
        assert asked(two.receive()).message_id == UNIQ_KEY


def test_a_message_from_before_the_server_began_is_asked_about(server: Server, store: MessageStore) -> None:
    with producer(server, "one") as one:
        begin(one)
    server.restart()
    with producer(server, "two") as two:
        assert asked(two.receive()).message_id == UNIQ_KEY
    assert len(store.transactions.pending()) == 1
