"""The tag that an entry tells of is that of its record, whatever the sender's memory held before."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient.store import HALF_TOPIC, Message, MessageQueue, open_store
from tests.support.oracle import reference
from tests.support.stores import SMALL, appender_of

PATTERN = b"TAGS\x01paid\x02" * 40


@pytest.mark.parametrize("shift", range(10))
def test_what_stood_where_the_crc_will_stand_is_not_taken_for_a_tag(tmp_path: Path, shift: int) -> None:
    root = tmp_path / "store"
    with open_store(root, SMALL, housekeeping=False) as store:
        store.topics.create("t", 1)
        appender = appender_of(store)
        appender.append(Message("t", PATTERN[shift:]))

        appender.append_half(Message("t", b"without a tag"), "producers")

        assert store.consume_queues[MessageQueue(HALF_TOPIC, 0)].entry(0).tags_code == 0
    assert reference.check_store(root) == []
