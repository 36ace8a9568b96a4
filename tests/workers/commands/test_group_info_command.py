"""``rmq group info``: the filters of running members, seen from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqclient import App, Message, Producer, sql
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import open_store
from rmqclient.workers.cli import rmq


def info(root: Path, *options: str) -> str:
    result = CliRunner().invoke(rmq, ["group", "info", "billing", "--store", str(root), *options])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.guarantee("G15")
def test_the_filter_of_a_running_member_is_shown(tmp_path: Path) -> None:
    # Given a running member with a filter, and messages that pass and that do not
    with open_store(tmp_path) as store, Producer(store) as producer:
        producer.create_topic("orders", 2)
        app = App(tmp_path)
        app.handler("orders", group="billing", tags="paid", filter=sql("total > 100"))(lambda _: None)
        consumer = PushConsumer(store, app.handlers, client_id="here")
        consumer.start()
        try:
            # Then another process sees what it asks for
            rows = [row for row in json.loads(info(tmp_path, "-o", "json")) if row["topic"] == "orders"]
            assert rows == [
                {
                    "topic": "orders",
                    "subscription": "tags paid; sql 'total > 100'; allocation averaged",
                    "members": ["here"],
                    "queues": 2,
                    "lag": 0,
                }
            ]
            assert "sql 'total > 100'" in info(tmp_path)
        finally:
            consumer.stop_taking()
            consumer.drain(10)
            consumer.close()
            producer.send(Message("orders", b""))

        # And when nobody runs, how far the group is
        query = "[?topic == 'orders'].[subscription, members, lag]"
        assert json.loads(info(tmp_path, "-o", "json", "--query", query)) == [[None, [], 1]]


@pytest.mark.parametrize("verb", ["info", "lag", "assignment"])
def test_a_group_that_nobody_knows_is_an_error_with_the_name_that_is_close(tmp_path: Path, verb: str) -> None:
    with open_store(tmp_path) as store, Producer(store) as producer:
        producer.create_topic("orders", 1)
        Admin(store).seek("billing", "orders", "earliest")
        result = CliRunner().invoke(rmq, ["group", verb, "biling", "--store", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no group is named biling: did you mean billing?" in result.stderr
