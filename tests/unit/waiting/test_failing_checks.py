"""Checks of transactions: whatever was accepted can be checked, and one half message that cannot holds up no other."""

from __future__ import annotations

import time

import pytest

from rmqclient.store import Message, MessageStore, ReceivedMessage, layout
from rmqclient.store.kernel._kernel import HALF_TOPIC, Appender, append_received
from rmqclient.store.waiting.half_messages import GIVEN_UP_QUEUE, HALF_QUEUE, checks_of
from rmqclient.store.waiting.transaction_log import GROUP
from tests.support.stores import QUEUE, TOPIC

MINUTE_MS = 60_000
ADVANCE_TO = layout.GROUP_QUEUE_SLOT.at["advance_to"]


class Clock:
    """A wall clock that a test sets."""

    def __init__(self, store: MessageStore) -> None:
        self.now_ms = time.time_ns() // 1_000_000
        store.transactions.now_ms = lambda: self.now_ms


def half_of(store: MessageStore, appender: Appender, body: bytes) -> ReceivedMessage:
    """Begin a transaction; return its half message."""
    sent = appender.append_half(Message(TOPIC, body), "PG")
    return store.messages.read(sent.commit_log_offset)


@pytest.mark.guarantee("G106")
@pytest.mark.parametrize("properties", [{"p": "a\x01b"}, {"p": "x" * 30_000}])
def test_whatever_was_accepted_can_be_checked(
    store: MessageStore, appender: Appender, properties: dict[str, str]
) -> None:
    clock = Clock(store)
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    store.topics.create(TOPIC, 1)
    append_received(
        appender, TOPIC, 0, b"a", text + "TRAN_MSG\x01true\x02PGROUP\x01PG\x02", flag=0, sys_flag=0,
        born_timestamp=clock.now_ms, born_host=bytes(8), store_host=bytes(8), half=True,
    )  # fmt: skip
    for checks in (1, 2):
        clock.now_ms += MINUTE_MS
        store.transactions.check()
        (half,) = store.transactions.pending()
        assert (checks_of(half), half.properties["p"]) == (checks, properties["p"])
    store.transactions.decide(store.transactions.pending()[0], commit=True)
    assert store.messages.at(QUEUE, 0).body == b"a"


@pytest.mark.guarantee("G106")
def test_one_without_room_for_a_check_is_given_up_and_the_others_are_checked(
    store: MessageStore, appender: Appender
) -> None:
    clock = Clock(store)
    model = half_of(store, appender, b"full")
    progress_at = store.groups.find_or_add(GROUP, store.topics.slot(HALF_QUEUE), 0).at + ADVANCE_TO
    left = 32_767 - 20 - sum(len(name) + len(value) + 2 for name, value in model.properties.items())
    full = {**model.properties, "p": "x" * (left - 3)}  # as a broker stores it
    appender.pass_half(model, HALF_TOPIC, full, progress_at, {})
    half_of(store, appender, b"other")
    clock.now_ms += MINUTE_MS
    store.transactions.check()
    assert [(each.body, checks_of(each)) for each in store.transactions.pending()] == [(b"other", 1)]
    copies = [store.messages.at(GIVEN_UP_QUEUE, number) for number in range(store.topics.max_offset(GIVEN_UP_QUEUE))]
    assert [copy.properties for copy in copies] == [full]
