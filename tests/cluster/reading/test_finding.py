"""Messages by key and id, tables, outboxes and dead letters of a cluster."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from rmqclient import Message, Outbox, Relay, Table
from rmqclient.backend import Backend
from rmqclient.failures import dead_letters
from rmqclient.failures.dead_letters import Selection
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.table import response
from tests.cluster.reading.conftest import answering
from tests.support.cluster.keeping_cluster import KeepingCluster
from tests.support.oracle.reference import encode

END = 2**63 - 1


def test_keys_are_looked_up_at_every_broker(kept: KeepingCluster, backend: Backend) -> None:
    for broker in ("broker-a", "broker-b"):
        kept.put("orders", broker.encode(), broker=broker, KEYS="7 8", UNIQ_KEY=f"id of {broker}")
        kept.put("orders", b"other", broker=broker, KEYS="77")
    found = backend.messages.by_key("orders", "7", 0, END, 64)
    assert [(message.body, message.queue.broker_name) for message in found] == [
        (b"broker-b", "broker-b"),
        (b"broker-a", "broker-a"),
    ]
    assert len(backend.messages.by_key("orders", "7", 0, END, 1)) == 1
    assert backend.messages.by_key("nothing", "7", 0, END, 64) == []
    by_id = backend.messages.by_id("id of broker-a", "orders")
    assert by_id is not None
    assert by_id.body == b"broker-a"


def test_another_key_with_the_same_hash_is_passed_over(kept: KeepingCluster, backend: Backend) -> None:
    record = kept.put("orders", b"other", broker="broker-a", KEYS="BB")
    kept.cluster.script[RequestCode.QUERY_MESSAGE] = lambda asked: response(
        asked, body=encode(record), indexLastUpdateTimestamp=0, indexLastUpdatePhyoffset=0
    )
    assert backend.messages.by_key("orders", "Aa", 0, END, 64) == []
    assert len(backend.messages.by_key("orders", "BB", 0, END, 64)) == 2, "each broker gave it"


def test_an_id_without_a_topic_is_searched_for_in_all(kept: KeepingCluster, backend: Backend) -> None:
    kept.cluster.script[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = answering({"topicList": ["orders"]})
    kept.put("orders", b"here", broker="broker-b", UNIQ_KEY="ABC")
    found = backend.messages.by_id("ABC")
    assert found is not None
    assert found.body == b"here"
    assert backend.messages.by_id("DEF") is None
    assert backend.messages.by_id("0A000001000027100000000000000000") is None, "no broker has this address"


def test_a_table_takes_the_value_that_was_stored_last(kept: KeepingCluster, url: str) -> None:
    kept.put("orders", b"1", broker="broker-b", KEYS="a")
    kept.put("orders", b"2", broker="broker-a", KEYS="a")  # read first, stored last
    kept.put("orders", b"1", broker="broker-a", KEYS="b")
    with Table(url, "orders") as table:
        assert dict(table) == {"a": b"2", "b": b"1"}
        kept.put("orders", b"", broker="broker-b", KEYS="b")
        table.wait_until_caught_up(20)
        assert dict(table) == {"a": b"2"}


def test_a_row_of_an_outbox_that_was_sent_is_found_by_its_id(kept: KeepingCluster, url: str, tmp_path: Path) -> None:
    outbox, database = Outbox(), tmp_path / "shop.db"
    connection = sqlite3.connect(database)
    outbox.create(connection)
    message_id = outbox.add(connection, Message("orders", b"7"))
    connection.execute("UPDATE rmq_outbox SET state = 1")  # claimed by a relay that was killed
    connection.commit()
    kept.put("orders", b"7", broker="broker-b", UNIQ_KEY=message_id)
    with closing(connection), Relay(url, outbox, lambda: sqlite3.connect(database)) as relay:
        assert relay.send() == 0
        outbox.add(connection, Message("orders", b"8"))
        connection.commit()
        assert relay.send() == 1
    assert sorted(kept.bodies("orders")) == [b"7", b"8"]


def test_dead_letters_are_replayed_once_from_this_host(kept: KeepingCluster, backend: Backend) -> None:
    topics = ["orders", "%DLQ%billing"]
    kept.cluster.state.topics = {"orders": 1, "%DLQ%billing": 1, "%RETRY%billing": 1}
    kept.cluster.script[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = answering({"topicList": topics})
    kept.put("%DLQ%billing", b"7", broker="broker-b", RETRY_TOPIC="orders", UNIQ_KEY="ABC")
    assert [(each.group, each.waiting) for each in dead_letters.groups(backend)] == [("billing", 1)]
    ((letter, again),) = dead_letters.replay(backend, "billing", Selection())
    assert (letter.message.body, letter.topic, again.queue.topic) == (b"7", "orders", "orders")
    assert list(dead_letters.replay(backend, "billing", Selection())) == []
    assert kept.bodies("orders") == [b"7"]
    assert (backend.directory / "config" / "deadLetters.jsonl").exists()
