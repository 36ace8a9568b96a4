"""What clients make by using it: those of one address make their part, and leave room for the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.broker.address import Address
from rmqclient.broker.limits.counters import Refusal
from rmqclient.broker.limits.limits import Limits
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request
from tests.broker.asking import LOCAL, Asking, AskingPeer, asking
from tests.broker.sending.sends import send_of

HERE, ELSEWHERE = Address("10.0.0.9", 40_000), Address("10.0.0.10", 40_000)
LIMITS = Limits(groups_per_address=2, group_queues_per_address=5, topics_per_address=2)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Asking]:
    with asking(tmp_path / "store", limits=LIMITS) as found:
        yield found


def asked(served: Asking, frame: Frame, client: Address = HERE) -> int:
    """Return the code of the answer to a client."""
    return served.ask_frame(frame, AskingPeer(LOCAL, client)).code


def commit(group: str, queue_id: int = 0) -> Frame:
    return request(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup=group, topic="orders", queueId=queue_id, commitOffset=0
    )


@pytest.mark.guarantee("G108")
def test_commits_for_invented_groups_take_only_the_part_of_their_address(served: Asking) -> None:
    assert asked(served, send_of()) == 0
    assert [asked(served, commit(f"invented{number}")) for number in range(4)] == [0, 0, 1, 1]
    # Then what it has made goes on, and another address makes its own
    assert asked(served, commit("invented0")) == 0
    assert asked(served, commit("theirs"), ELSEWHERE) == 0
    assert served.broker.counters.count(Refusal.MADE) == 2
    assert {slot.group for slot in served.broker.store.groups} == {"invented0", "invented1", "theirs"}


@pytest.mark.guarantee("G108")
def test_groups_begin_in_so_many_queues_as_their_address_may_have(served: Asking) -> None:
    assert asked(served, send_of()) == 0
    codes = [asked(served, commit(group, number)) for group in ("one", "two") for number in range(4)]
    assert codes == [0, 0, 0, 0, 0, 1, 1, 1]
    assert asked(served, commit("two"), ELSEWHERE) == 0


@pytest.mark.guarantee("G108")
def test_messages_make_so_many_topics_as_their_address_may_have(served: Asking) -> None:
    codes = [asked(served, send_of(topic=f"invented{number}")) for number in range(3)]
    assert codes == [0, 0, 1]
    assert asked(served, send_of(topic="invented0")) == 0
    assert asked(served, send_of(topic="theirs"), ELSEWHERE) == 0
