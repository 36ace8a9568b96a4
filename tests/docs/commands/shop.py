"""The shop of the README, in a directory of its own, with whatever the pages look at: topics, groups, a transaction."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqclient import Decision, Message, Producer, StoreConfig, TransactionProducer
from rmqclient.admin import Admin
from rmqclient.workers.probe import main as check
from tests.docs.page import REPOSITORY, program_of
from tests.docs.sessions.session import environment_of
from tests.docs.sessions.terminal import Terminal
from tests.workers.supervised import eventually

TABLES = {"prices": ("AAPL", {"bid": 12.5}), "valuations": ("17", {"cents": 250})}
GROUPS = {"billing": "orders", "delays": "flights"}

_ID = re.compile(r"\b7F[0-9A-F]+(\.\.\.)?")
_PLACES = {
    "/var/lib/node_exporter/": "",
    "/data/store": "./store",
    "demo-output/store": "./store",
    "demo-output/prices": "./store",
    "127.0.0.1:5558": "127.0.0.1:0",
}
_LISTENING = ("rmq serve ./store", "rmq dashboard ./store")


class Shop(NamedTuple):
    """A directory with ``shop.py`` and ``store``, and the ids of a message and of an undecided transaction."""

    directory: Path
    message_id: str
    transaction_id: str

    def here(self, command: str) -> str:
        """Return a command of a page with the ids, the places and the ports of this shop."""
        command = _ID.sub(self.transaction_id if command.startswith("rmq tx") else self.message_id, command)
        for theirs, ours in _PLACES.items():
            command = command.replace(theirs, ours)
        return f"{command} --listen 127.0.0.1:0" if command in _LISTENING else command

    @contextmanager
    def workers(self) -> Iterator[None]:
        """Run its handlers meanwhile."""
        with Terminal("exec rmq run shop:app --processes 1", self.directory, self.environment()) as workers:
            workers.wait_for(lambda printed: "all workers are ready" in printed)
            eventually(self._is_healthy, "a healthy store")  # with a housekeeper, which one of them has become
            yield

    def _is_healthy(self) -> bool:
        return check(["-o", "nagios", "--store", str(self.directory / "store")]) == 0

    def environment(self) -> dict[str, str]:
        """Return the variables of a reader who has named the store."""
        return environment_of(REPOSITORY) | {"RMQ_STORE": str(self.directory / "store")}

    def enter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let this process be the reader."""
        monkeypatch.chdir(self.directory)
        for name in [name for name in os.environ if name.startswith("RMQ_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("RMQ_STORE", str(self.directory / "store"))


def open_shop(directory: Path) -> Shop:
    """Write the application, and send what the pages look at."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (directory / "shop.py").write_text(program_of(readme), encoding="utf-8")
    store, config = directory / "store", StoreConfig.small()
    with TransactionProducer(store, group="checkout", check=lambda _: Decision.UNKNOWN, config=config) as producer:
        producer.create_topic("flights", 1)
        _fill_tables(producer)
        message_id = _send_orders(producer)
        begun = producer.transaction(Message("orders", {"number": "A-9", "total": 1.0}))
        begun.leave()
    with Admin(store) as admin:
        for group, topic in GROUPS.items():
            admin.seek(group, topic, "earliest")
    return Shop(directory, message_id, begun.message_id)


def _fill_tables(producer: Producer) -> None:
    for topic, (key, value) in TABLES.items():
        producer.create_topic(topic, 1, cleanup_policy="compact")
        producer.send(topic, value, key=key)


def _send_orders(producer: Producer) -> str:
    """Send some that the handler takes, and return the id of the first one."""
    sent = [producer.send("orders", {"number": f"A-{n}", "total": 1.0}, tags="paid") for n in range(8)]
    return sent[0].message_id
