"""The filter of a handler: tags, properties and body together, asked for by the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqclient import jmespath, sql
from rmqclient.errors import FilterError
from rmqclient.filters import Filter, MessageFilter
from rmqclient.store import Message, MessageQueue, MessageStore, QueueGrant, StoreConfig, TagSet, open_store

QUEUE = MessageQueue("t", 0)
SMALL = StoreConfig(commit_log_file_bytes=1 << 20, max_body_bytes=1_000, consume_queue_file_entries=700)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path, SMALL, housekeeping=False) as opened:
        yield opened


def append(store: MessageStore, messages: list[Message]) -> None:
    appender = store.appenders.make(lambda name: store.topics.create(name, 1), lambda body: bytes(str(body), "utf-8"))
    for first in range(0, len(messages), 100):
        appender.append_batch(messages[first : first + 100])


def grant_of(store: MessageStore, tags: TagSet) -> QueueGrant:
    slot = store.groups.find_or_add("group", store.topics.slot(QUEUE), 0)
    return store.grants.grant(slot, slot.load("epoch"), tags)


def test_a_message_has_to_pass_everything_that_is_asked_for(store: MessageStore) -> None:
    # Given messages that pass each part or do not
    messages = [
        Message("t", body, tags=tag, properties={"region": region})
        for tag in ("paid", "open")
        for region in ("eu", "us")
        for body in (b'{"total": 200}', b'{"total": 2}', b"text")
    ]
    append(store, messages)
    wanted = MessageFilter("paid", (sql("region = 'eu'"), jmespath("total > `100`")))
    grant = grant_of(store, wanted.tag_set)

    # Then only what passes all is taken, everything else is finished, and each is counted once, where it fell out
    taken = grant.take(32, 2_000)
    assert [(each.tags, each.properties["region"], each.body) for each in taken] == [("paid", "eu", b'{"total": 200}')]
    assert (grant.committed_offset, grant.skipped) == (0, 11)
    assert grant.acknowledge(taken[0])
    assert grant.committed_offset == 12
    counts = wanted.counts
    assert (counts.looked_at, counts.passed, counts.refused_by_properties) == (6, 1, 3)
    assert (counts.refused_by_body, counts.undecided) == (2, 1)


def test_what_does_not_pass_takes_no_place_in_a_batch(store: MessageStore) -> None:
    append(store, [Message("t", b"", properties={"n": str(number)}) for number in range(3_000)])
    grant = grant_of(store, MessageFilter(filter=sql("n = 1500 OR n > 2990")).tag_set)
    taken = [message.queue_offset for message in grant.take(5, 2_000)]
    assert taken == [1_500, 2_991, 2_992, 2_993, 2_994]
    assert grant.committed_offset == 1_500
    assert grant.acknowledge_offsets(taken)
    assert grant.committed_offset == 2_995


def test_a_take_asks_about_some_thousand_messages_at_most(store: MessageStore) -> None:
    append(store, [Message("t", b"", properties={"n": "1"})] * 9_000)
    grant = grant_of(store, MessageFilter(filter=sql("n = 2")).tag_set)
    assert grant.take(32, 2_000) == []
    assert 2_000 <= grant.next_offset < 9_000
    while grant.has_more:
        assert grant.take(32, 2_000) == []
    assert grant.committed_offset == 9_000


def test_a_filter_of_tags_alone_asks_for_nothing_more(store: MessageStore) -> None:
    append(store, [Message("t", b"", tags="paid"), Message("t", b"")])
    wanted = MessageFilter("paid")
    assert len(grant_of(store, wanted.tag_set).take(32, 2_000)) == 1
    assert wanted.counts.looked_at == 0


def test_a_retry_topic_is_not_filtered(store: MessageStore) -> None:
    append(store, [Message("t", b"text", tags="open")])
    everything = MessageFilter("paid", (sql("a = 1"), jmespath("total")), topic="%RETRY%billing")
    assert everything.expression == "*"
    assert len(grant_of(store, everything.tag_set).take(32, 2_000)) == 1
    message = store.messages.at(QUEUE, 0)
    assert everything.matches(message)
    assert not MessageFilter("paid", (sql("a = 1"), jmespath("total")), topic="t").matches(message)


def test_one_line_says_what_passes() -> None:
    assert MessageFilter().expression == "*"
    assert MessageFilter("b||a", (jmespath("total"), sql("n > 5"))).expression == "a || b; sql n > 5; jmespath total"


@pytest.mark.parametrize(("make", "expression"), [(sql, "a ="), (sql, ""), (jmespath, "a["), (jmespath, "")])
def test_a_bad_expression_is_refused(make: Callable[[str], Filter], expression: str) -> None:
    with pytest.raises(FilterError):
        make(expression)


@pytest.mark.parametrize(
    "given", ["n > 5", 5, ("n > 5",), (sql("a = 1"), sql("b = 1")), [jmespath("a"), jmespath("b")]]
)
def test_what_is_not_one_filter_of_each_kind_is_refused(given: Any) -> None:
    with pytest.raises(FilterError, match=r"^filter="):
        MessageFilter("*", given)
