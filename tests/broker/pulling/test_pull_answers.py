"""What a pull is answered: codes, offsets and records, as by a RocketMQ broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.broker.pulling.queue_reader import MOST_BYTES
from rmqclient.remoting.bodies import GroupConfig
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store.settings.config_file import TopicConfig
from rmqclient.store.wire import decode_records, parse_offset_id
from tests.broker.pulling.room import QUEUE, PullRoom, pull_room
from tests.support.stores import SMALL, body_of

OFFSETS = ("nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId")


@pytest.fixture
def room(tmp_path: Path) -> Iterator[PullRoom]:
    with pull_room(tmp_path / "store") as opened:
        yield opened


def summary(answer: Frame) -> tuple[int, str | None, list[int]]:
    return answer.code, answer.remark, [int(answer.fields[name]) for name in OFFSETS]


def numbers_in(answer: Frame) -> list[int]:
    return [message.queue_offset for message in decode_records(answer.body)]


def test_a_pull_brings_the_records_of_its_queue_in_order(room: PullRoom) -> None:
    room.send("a", "b", "c")
    answer = room.pull_now(1)
    assert summary(answer) == (0, "FOUND", [3, 0, 3, 0])
    assert [(each.queue_offset, each.body, each.tags) for each in decode_records(answer.body)] == [
        (1, body_of(1), "b"),
        (2, body_of(2), "c"),
    ]


def test_an_empty_queue_has_nothing_yet_and_moves_any_other_offset(room: PullRoom) -> None:
    assert summary(room.pull_now(0)) == (19, "NO_MESSAGE_IN_QUEUE", [0, 0, 0, 0])
    assert summary(room.pull_now(5)) == (21, "NO_MESSAGE_IN_QUEUE", [0, 0, 0, 0])


def test_offsets_outside_of_the_queue_are_moved_and_its_end_has_nothing_yet(room: PullRoom) -> None:
    room.send("a", "b")
    assert summary(room.pull_now(2)) == (19, "OFFSET_OVERFLOW_ONE", [2, 0, 2, 0])
    assert summary(room.pull_now(3)) == (21, "OFFSET_OVERFLOW_BADLY", [2, 0, 2, 0])
    assert summary(room.pull_now(-1)) == (21, "OFFSET_TOO_SMALL", [0, 0, 2, 0])


def test_a_queue_whose_oldest_messages_were_removed_moves_the_pull_to_the_oldest_one(tmp_path: Path) -> None:
    with pull_room(tmp_path / "store", SMALL) as room:
        room.send(*["a"] * 100, size=1_500)
        room.store.topics.raise_min_offset(QUEUE, 30)
        assert summary(room.pull_now(7)) == (21, "OFFSET_TOO_SMALL", [30, 30, 100, 0])
        assert numbers_in(room.pull_now(30, maxMsgNums=2)) == [30, 31]


def test_an_answer_has_as_many_messages_as_the_client_takes_and_32_at_most(room: PullRoom) -> None:
    room.send(*["a"] * 40)
    assert numbers_in(room.pull_now(3, maxMsgNums=2)) == [3, 4]
    assert numbers_in(room.pull_now(0, maxMsgNums=1_000)) == list(range(32))
    assert numbers_in(room.pull_now(0, maxMsgNums=0)) == [0]


def test_an_answer_has_a_quarter_of_a_mebibyte_and_one_message_at_least(room: PullRoom) -> None:
    room.send(*["a"] * 3, size=100_000)
    room.send("a", "a", size=300_000)
    assert numbers_in(room.pull_now(0)) == [0, 1]
    assert len(room.pull_now(0).body) <= MOST_BYTES
    assert numbers_in(room.pull_now(3)) == [3]
    assert numbers_in(room.pull_now(0, maxMsgBytes=1)) == [0]


def test_messages_come_across_the_files_of_the_queue_and_of_the_log(tmp_path: Path) -> None:
    with pull_room(tmp_path / "store", SMALL) as room:
        room.send(*["a"] * 200, size=1_000)
        found: list[int] = []
        while len(found) < 200:
            answer = room.pull_now(len(found))
            assert answer.code == 0
            found += numbers_in(answer)
        assert found == list(range(200))


def test_records_name_the_address_by_which_the_client_came_in(room: PullRoom) -> None:
    room.send("a")
    (message,) = decode_records(room.pull_now(0).body)
    found = parse_offset_id(message.offset_message_id)
    assert (found.address, found.commit_log_offset) == ("10.1.2.3:9876", message.commit_log_offset)


def test_a_damaged_record_is_stepped_over(room: PullRoom) -> None:
    room.send("a", "b", "c")
    at = room.store.messages.at(QUEUE, 1).commit_log_offset
    memoryview(room.store.log_files.mapping(0))[at + 100 : at + 104] = b"????"
    assert numbers_in(room.pull_now(0)) == [0, 2]


REFUSED = [
    ({"consumerGroup": "no group", "topic": "none"}, ResponseCode.SYSTEM_ERROR),
    ({"consumerGroup": "paused", "topic": "none"}, ResponseCode.NO_PERMISSION),
    ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
    ({"topic": "closed", "queueId": 77}, ResponseCode.NO_PERMISSION),
    ({"queueId": 1}, ResponseCode.SYSTEM_ERROR),
    ({"queueId": -1}, ResponseCode.SYSTEM_ERROR),
    ({"topic": "unread"}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
    ({"sysFlag": 8}, ResponseCode.SYSTEM_ERROR),
]


@pytest.mark.parametrize(("fields", "code"), REFUSED)
def test_a_pull_that_is_not_allowed_is_refused_in_the_order_of_a_broker(
    room: PullRoom, fields: dict[str, object], code: int
) -> None:
    room.groups.change(GroupConfig("paused", may_consume=False))
    room.topics.create("closed", TopicConfig(1, 1, perm=2))
    room.topics.create("unread", TopicConfig(1, 1))
    answer = room.pull_now(0, **fields)
    assert answer.code == code
    assert answer.remark


def test_the_flag_commits_also_when_nothing_is_found(room: PullRoom) -> None:
    room.send("a")
    room.pull_now(0, sysFlag=1, commitOffset=7)
    room.pull_now(1, sysFlag=1, commitOffset=8)
    room.pull_now(0, sysFlag=1, commitOffset=-1)
    room.pull_now(0, commitOffset=9)
    assert room.rules.committed == [7, 8]


def test_a_client_without_the_queue_gets_nothing_yet(room: PullRoom) -> None:
    room.send("a")
    room.rules.is_lease_held = False
    assert summary(room.pull_now(0)) == (19, "OFFSET_OVERFLOW_ONE", [0, 0, 1, 0])


def test_a_member_is_not_fed_again_what_its_group_finished_before(room: PullRoom) -> None:
    room.send("a", "b", "c")
    room.rules.feeds_from = 2
    assert numbers_in(room.pull_now(0)) == [2]
