"""RocketMQ's Java clients with an access key against ``rmq serve --acl``: what they sign is what is checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import Producer
from rmqclient.testing import Server, serve
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, why_not
from tests.interop.serve.programs import java
from tests.support.lines import of_kind

REASON = why_not(BROKER_4_9_7, BROKER_5_3_3)
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)

KEY, SECRET = "interop-key", "interop-secret"
WAYS = [f"{who}, by {what}" for what in ("key", "id", "place") for who in ("producer", "consumer")]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Server]:
    """A server that knows one access key, which may send to any topic and read any."""
    account = {"accessKey": KEY, "secretKey": SECRET, "defaultTopicPerm": "PUB|SUB", "defaultGroupPerm": "SUB"}
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"accounts": [account]}), encoding="utf-8")
    keys.chmod(0o600)
    with serve(tmp_path / "store", "--acl", str(keys)) as server:
        yield server


@pytest.mark.parametrize("release", [BROKER_4_9_7, BROKER_5_3_3])
def test_a_java_client_with_the_right_key_finds_messages_by_key_by_id_and_by_place(
    guarded: Server, tmp_path: Path, release: str
) -> None:
    lines = java(release, tmp_path / "client").run("query", guarded.address, "orders", "order-7", KEY, SECRET)
    (sent,) = of_kind(lines, "sent")
    found = of_kind(lines, "found")
    assert [line["way"] for line in found] == WAYS
    assert {line["unique"] for line in found} == {sent["id"]}
    assert {line["body"] for line in found} == {"body"}


@pytest.mark.parametrize("release", [BROKER_4_9_7, BROKER_5_3_3])
def test_a_java_client_with_another_secret_finds_nothing(guarded: Server, tmp_path: Path, release: str) -> None:
    with Producer(guarded.root) as producer:
        producer.create_topic("orders", 1)
    with pytest.raises(AssertionError, match="No route info of this topic: orders"):  # all that this client tells
        java(release, tmp_path / "client").run("query", guarded.address, "orders", "order-7", KEY, "another")
    assert "signature" in guarded.log
