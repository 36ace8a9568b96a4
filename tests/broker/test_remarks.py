"""What a refusal tells a client."""

from __future__ import annotations

from pathlib import Path

from rmqclient.remoting.codes import RequestCode, ResponseCode
from tests.broker.asking import asking


def test_a_refusal_does_not_tell_where_the_store_lies(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with asking(root) as client:
        answer = client.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="billing", topic="unknown", queueId=9, commitOffset=3
        )
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert answer.remark == "queue 9 of topic 'unknown' does not exist in the store"
