"""What a refusal tells a client."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame, FrameReader, encode
from rmqclient.remoting.table import request
from rmqclient.testing import serve
from tests.broker.asking import asking

PATIENCE_S = 20.0


def test_a_refusal_does_not_tell_where_the_store_lies(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with asking(root) as client:
        answer = client.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="billing", topic="unknown", queueId=9, commitOffset=3
        )
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert answer.remark == "queue 9 of topic 'unknown' does not exist in the store"


@pytest.mark.parametrize("root", ["store", "."])
def test_a_relative_path_is_not_told_either_and_takes_nothing_out_of_the_words(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commit = request(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="billing", topic="a.store", queueId=9, commitOffset=3
    )
    with serve(root) as server:
        refused = answer_of(server.address, request(RequestCode.GET_TOPIC_STATS_INFO, topic="a.store"))
        assert refused.remark == "topic[a.store] not exist"
        assert answer_of(server.address, commit).remark == "queue 9 of topic 'a.store' does not exist in the store"


def answer_of(address: str, asked: Frame) -> Frame:
    """Return the answer of a server to one request on a connection of its own."""
    host, _, port = address.rpartition(":")
    reader = FrameReader()
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.sendall(encode(asked))
        while data := connection.recv(65_536):
            if frames := reader.feed(data):
                return frames[0]
    raise AssertionError("the server hung up")
