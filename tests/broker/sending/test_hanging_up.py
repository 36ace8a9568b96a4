"""Requests of clients that send, wait for no answer and hang up, as SendOneWay of Go and C++ does without the bit."""

from __future__ import annotations

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request
from tests.broker.asking import Asking, AskingPeer
from tests.broker.sending.sends import ONES, UNIQ_KEY, messages, only, read, send_of

COMMIT = 8
HALF = {**ONES, "TRAN_MSG": "true", "PGROUP": "makers"}


def after_hanging_up(client: Asking, asked: Frame) -> Frame:
    """Let a request be answered whose connection has ended; return what nobody reads."""
    peer = AskingPeer()
    peer.is_open = False
    return client.ask_frame(asked, peer)


def test_the_first_message_of_a_topic_is_stored_after_its_client_has_hung_up(client: Asking) -> None:
    assert after_hanging_up(client, send_of()).code == 0
    assert only(client, "orders").body == b"hello"


def test_a_commit_is_carried_out_after_its_client_has_hung_up(client: Asking) -> None:
    half = read(client, client.ask_frame(send_of(properties=HALF, sysFlag=4)))
    commit = request(
        RequestCode.END_TRANSACTION,
        producerGroup="makers",
        tranStateTableOffset=half.queue_offset,
        commitLogOffset=half.commit_log_offset,
        commitOrRollback=COMMIT,
        fromTransactionCheck=False,
        msgId=UNIQ_KEY,
    )
    assert after_hanging_up(client, commit).code == 0
    assert only(client, "orders").body == b"hello"


def test_a_message_that_is_given_back_waits_for_its_retry_after_its_client_has_hung_up(client: Asking) -> None:
    sent = read(client, client.ask_frame(send_of()))
    back = request(RequestCode.CONSUMER_SEND_MSG_BACK, offset=sent.commit_log_offset, group="billing", delayLevel=0)
    assert after_hanging_up(client, back).code == 0
    assert len(messages(client, "SCHEDULE_TOPIC_XXXX")) == 1
