"""One message that takes for ever, beside many others, in a process that is killed: real processes, real kills."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import Message, Producer
from rmqclient.admin import Admin
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.store import MessageStore, open_store
from tests.groups.membership.test_takeover import Member, members, wait_for
from tests.groups.processes.member import GROUP, SLOW, TOPIC


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store") as opened:
        yield opened


@pytest.mark.guarantee("G6")
def test_a_slow_message_causes_no_redelivery_of_the_others_after_a_crash(store: MessageStore) -> None:
    # Given a queue whose first message never ends, and a process that has handled those behind it, but for some that
    # the thread of the slow one has taken together with it
    names = [f"m{number}" for number in range(1_000)]
    with Producer(store) as producer:
        producer.create_topic(TOPIC, 1)
        for name in [SLOW, *names]:
            producer.send(Message(TOPIC, name.encode()))
    with members(store, 1, threads=2) as (first,):
        behind = 1_000 - ConsumerConfig().batch_messages
        wait_for(
            lambda: Admin(store).lag(GROUP) and Admin(store).lag(GROUP)[0].acknowledged_ahead > behind,
            "the rest is handled",
        )
        assert Admin(store).lag(GROUP)[0].committed_offset == 0, "it holds the offset"

        # When that process is killed, and another one takes the queue over
        first.send_signal(signal.SIGKILL)
        first.process.wait(20)
        second = Member(store.root, 9, 10_000, 0.0, threads=2)
        wait_for(lambda: second.names("start"), "the slow one is delivered again")
        with Producer(store) as producer:
            producer.send(Message(TOPIC, b"after"))
        wait_for(lambda: "after" in second.names("end"), "and what is new")
        second.send_signal(signal.SIGKILL)
        second.process.wait(20)

    # Then nothing comes again that was handled
    assert SLOW in second.names("start")
    assert len(first.names("end")) > behind
    assert set(second.names("start")) & set(first.names("end")) == set()
