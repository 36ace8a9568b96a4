"""``rmq tx``: a person sees what nobody has decided, and decides it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rmqclient import Message, StoreConfig, TransactionProducer
from rmqclient.store import MessageQueue, MessageStore, open_store
from rmqclient.store.config import TransactionConfig
from rmqclient.workers.cli import rmq


def tx(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(rmq, ["tx", *arguments, "--store", str(root)])


@pytest.fixture
def ids(tmp_path: Path) -> list[str]:
    """Leave four undecided transactions, the first two of which were given up."""
    config = StoreConfig(transactions=TransactionConfig(check_max=1), default_queue_count=1)
    with open_store(tmp_path, config, housekeeping=False) as store:
        found = begin(store, b"0", b"1")
        store.transactions.now_ms = lambda: time.time_ns() // 1_000_000 + 3_600_000
        store.transactions.check()
        store.transactions.check()
        return [*found, *begin(store, b"2", b"3")]


def begin(store: MessageStore, *bodies: bytes) -> list[str]:
    with TransactionProducer(store, group="shop") as producer:
        begun = [producer.transaction(Message("orders", body)) for body in bodies]
        for each in begun:
            each.leave()
    return [each.message_id for each in begun]


@pytest.mark.guarantee("G32")
def test_a_person_sees_and_decides_what_nobody_has_decided(tmp_path: Path, ids: list[str]) -> None:
    rows = json.loads(tx(tmp_path, "ls", "-o", "json").stdout)
    assert [(row["message_id"], row["state"], row["checks"], row["group"], row["topic"]) for row in rows] == [
        (ids[0], "given up", 1, "shop", "orders"),
        (ids[1], "given up", 1, "shop", "orders"),
        (ids[2], "asked about", 0, "shop", "orders"),
        (ids[3], "asked about", 0, "shop", "orders"),
    ]
    assert tx(tmp_path, "ls", "--topic", "other", "-o", "json").exit_code == 1, "no such topic"
    # When some are decided each way
    assert tx(tmp_path, "commit", ids[0], ids[3]).exit_code == 0
    assert "rolled back" in tx(tmp_path, "rollback", ids[1]).stdout
    # Then the handlers get those that were committed, and one is left
    with open_store(tmp_path) as store:
        queue = MessageQueue("orders", 0)
        assert [store.messages.at(queue, number).body for number in range(store.topics.max_offset(queue))] == [
            b"0",
            b"3",
        ]
    assert json.loads(tx(tmp_path, "ls", "-o", "json", "--query", "[].message_id").stdout) == [ids[2]]


def test_an_id_that_waits_nowhere_is_told_and_nothing_is_decided(tmp_path: Path, ids: list[str]) -> None:
    result = tx(tmp_path, "commit", ids[2], "nobody")
    assert result.exit_code != 0
    assert "no undecided transaction has the id nobody; nothing was decided" in result.stderr
    assert len(json.loads(tx(tmp_path, "ls", "-o", "json").stdout)) == 4
