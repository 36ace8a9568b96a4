"""Histories made by hand, with one anomaly each: every rule is seen to fail."""

from __future__ import annotations

import pytest

from tests.interop.cluster.kills.evidence import NEVER, Call, Evidence, Fault, Send
from tests.interop.cluster.kills.judging import SECOND, figures, judge

MESSAGES = 10
FIRST = 1 << 40
"""The first message of producer 1."""


def call(offset: int, at: float, *, subject: int | None = None, process: int = 1, lasts: float = 0.1) -> Call:
    begun = int(at * SECOND)
    return Call(
        begun, begun + int(lasts * SECOND), FIRST + offset if subject is None else subject, 0, offset, process, 1
    )


def healthy() -> Evidence:
    """Ten messages of one queue, handled once by each group."""
    subjects = [FIRST + number for number in range(MESSAGES)]
    sends = [
        Send(each, number, number + 1, stored=True, queue=0, offset=number) for number, each in enumerate(subjects)
    ]
    evidence = Evidence(sends=sends, stored={(0, number): each for number, each in enumerate(subjects)})
    for group in (0, 1):
        evidence.calls[group] = [call(number, 100 + number) for number in range(MESSAGES)]
    return evidence


def killed(what: str, at: float, *, over: float) -> Fault:
    return Fault(what, int(at * SECOND), int(over * SECOND))


def test_a_run_in_which_nothing_went_wrong_passes() -> None:
    assert judge(healthy()) == {}
    assert figures(healthy())["messages stored"] == MESSAGES


def test_a_message_that_was_stored_and_is_gone_is_found() -> None:
    evidence = healthy()
    del evidence.stored[0, 4]
    assert "lost from the cluster" in judge(evidence)


def test_a_message_that_nobody_sent_is_found() -> None:
    evidence = healthy()
    evidence.stored[0, MESSAGES] = FIRST + 99
    assert "invented" in judge(evidence)


def test_a_call_with_another_message_than_is_stored_is_found() -> None:
    evidence = healthy()
    evidence.calls[1][3] = call(3, 103, subject=FIRST + 4)
    assert list(judge(evidence)) == ["invented"]


@pytest.mark.parametrize("is_cut_off", [True, False])
def test_a_message_that_was_never_handled_to_its_end_is_found(is_cut_off: bool) -> None:
    evidence = healthy()
    evidence.calls[1][9] = evidence.calls[1][9]._replace(ended=NEVER)
    if not is_cut_off:
        evidence.calls[1].pop()
    assert list(judge(evidence)) == ["lost in delivery"]


def test_messages_of_a_producer_in_the_wrong_order_are_found() -> None:
    evidence = healthy()
    evidence.stored[0, 3], evidence.stored[0, 4] = evidence.stored[0, 4], evidence.stored[0, 3]
    assert "order of a producer" in judge(evidence)


def test_a_gap_of_the_ordered_group_is_found_and_one_of_the_other_group_is_none() -> None:
    evidence = healthy()
    evidence.calls[0] = [call(number, 100 + at) for at, number in enumerate([0, 1, 3, 2, 4, 5, 6, 7, 8, 9])]
    evidence.calls[1] = evidence.calls[0]
    assert list(judge(evidence)) == ["reordered"]


def test_two_calls_of_one_queue_at_once_are_found() -> None:
    evidence = healthy()
    evidence.calls[0][3] = call(3, 103, lasts=1.5)
    assert list(judge(evidence)) == ["two at once"]


def test_a_call_that_was_cut_off_runs_until_its_process_is_dead() -> None:
    evidence = healthy()
    cut_off = call(3, 103)._replace(ended=NEVER)
    evidence.calls[0][3:4] = [cut_off, call(3, 103.6, process=2)]
    evidence.faults = [killed("worker", 103.1, over=103.5)]
    assert judge(evidence) == {}
    evidence.faults = [killed("worker", 103.1, over=103.9)]
    assert list(judge(evidence)) == ["two at once"]


def test_a_repeat_is_allowed_after_a_death_and_not_without_one() -> None:
    evidence = healthy()
    evidence.calls[1].append(call(8, 112, process=2))
    assert list(judge(evidence)) == ["repeated without a fault"]
    evidence.faults = [killed("worker", 110, over=111)]
    assert judge(evidence) == {}


def test_a_repeat_of_what_had_to_be_committed_before_the_death_is_found() -> None:
    evidence = healthy()
    evidence.calls[1].append(call(0, 112, process=2))
    evidence.faults = [killed("worker", 110.5, over=111)]
    assert list(judge(evidence)) == ["repeated without a fault"]
    evidence.faults = [killed("broker", 110.5, over=111)]
    assert judge(evidence) == {}


def test_a_broker_that_dies_young_has_forgotten_what_the_life_before_had_not_written() -> None:
    evidence = healthy()
    evidence.calls[1].append(call(1, 180, process=2))
    young = killed("broker", 127, over=129)._replace(name="a")
    evidence.faults = [killed("broker", 110, over=113)._replace(name="a"), young]
    assert judge(evidence) == {}
    evidence.faults = [killed("broker", 110, over=111)._replace(name="a"), young]
    assert list(judge(evidence)) == ["repeated without a fault"]
    evidence.faults = [killed("broker", 110, over=113)._replace(name="b"), young]
    assert list(judge(evidence)) == ["repeated without a fault"]


def test_a_repeat_of_what_came_after_the_death_of_a_worker_is_found() -> None:
    evidence = healthy()
    evidence.calls[1].append(call(9, 112, process=2))
    evidence.faults = [killed("worker", 104, over=105)]
    assert list(judge(evidence)) == ["repeated without a fault"]
    evidence.faults = [killed("broker", 104, over=105)]
    assert judge(evidence) == {}


def test_a_message_that_is_stored_twice_is_allowed_only_when_a_broker_died() -> None:
    evidence = healthy()
    evidence.stored[0, MESSAGES] = FIRST + 9
    for group in (0, 1):
        evidence.calls[group].append(call(MESSAGES, 120, subject=FIRST + 9))
    assert list(judge(evidence)) == ["stored twice"]
    evidence.faults = [replace_at(killed("broker", 0, over=1))]
    assert judge(evidence) == {}


def replace_at(fault: Fault) -> Fault:
    """Let a fault begin with the sends of the story, at its very beginning."""
    return fault._replace(at=0)
