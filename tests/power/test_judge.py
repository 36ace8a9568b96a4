"""The judge of power cuts can say no: made-up histories, each with one thing wrong."""

from __future__ import annotations

from tests.power.judge import Figures, Ledger, PowerCut, Recovered
from tests.power.life import body_of
from tests.support.oracle.reference import ReferenceRecord

NS_PER_MS = 1_000_000
CUT_AT = 1_000 * NS_PER_MS
END = 400


def record(number: int, queue_offset: int | None = None, *, body: bytes | None = None) -> tuple[int, ReferenceRecord]:
    """Make the record of a message that takes 100 bytes of the log."""
    offset = number if queue_offset is None else queue_offset
    return offset * 100, ReferenceRecord(
        topic="events", queue_offset=offset, body=body_of(1, number, 20) if body is None else body
    )


STORED = [record(number) for number in range(4)]


def judged(
    stored: list[tuple[int, ReferenceRecord]] = STORED,
    *,
    sync: bool = False,
    age_ms: int = 5,
    flushed_to: int = 0,
    groups: tuple[tuple[str, int, int, int, int], ...] = (),
    acknowledged: tuple[int, ...] = (),
) -> tuple[list[str], Ledger, Figures]:
    """Four messages were sent and returned, ``age_ms`` before the cut; return what the judge says to what is stored."""
    figures = Figures()
    ledger = Ledger(figures)
    for number in range(4):
        at = CUT_AT - age_ms * NS_PER_MS
        lines = [f"i {number} 1 20 events", f"o {at} {number} 1 0 {number} {(number + 1) * 100}"]
        ledger.read_sender(1, lines, sync=sync)
    ledger.read_consumer(f"k events 0 {number} 1 {number}" for number in acknowledged)
    ledger.cut(PowerCut(CUT_AT, flushed_to, window_ms=50))
    log_end = max((offset + 100 for offset, _ in stored), default=0)
    return ledger.judge(Recovered(log_end, list(groups)), stored, 0), ledger, figures


def test_all_that_was_sent_is_there() -> None:
    problems, _, figures = judged(sync=True)
    assert problems == []
    assert figures.acknowledged_sync == 4


def test_what_no_flush_had_covered_may_be_lost() -> None:
    problems, _, figures = judged(STORED[:2], flushed_to=200)
    assert problems == []
    assert (figures.lost_async, figures.oldest_lost_ms) == (2, 5)


def test_a_lost_durable_message_is_a_problem() -> None:
    problems, _, figures = judged(STORED[:3], sync=True)
    assert problems == ["SYNC message (1, 3), 5.0 ms old, is lost"]
    assert figures.lost_sync == 1


def test_what_a_flush_had_covered_must_be_there() -> None:
    problems, _, _ = judged(STORED[:3], flushed_to=END)
    assert [problem for problem in problems if "flushed to 400" in problem]


def test_what_is_older_than_the_window_must_be_there() -> None:
    problems, _, _ = judged(STORED[:3], age_ms=51)
    assert [problem for problem in problems if "beyond the window" in problem]


def test_nothing_is_lost_from_the_middle() -> None:
    problems, _, _ = judged([STORED[0], STORED[2], STORED[3]])
    assert [problem for problem in problems if "from the middle" in problem]


def test_a_message_that_was_never_sent_is_a_problem() -> None:
    problems, _, _ = judged([*STORED, record(7)])
    assert [problem for problem in problems if "never sent" in problem]


def test_a_message_in_two_places_is_a_problem() -> None:
    problems, _, _ = judged([*STORED, record(3, 4)])
    assert [problem for problem in problems if "stored twice" in problem]


def test_a_message_in_another_place_than_its_sender_was_told_is_a_problem() -> None:
    problems, _, _ = judged([STORED[0], record(2, 1), record(1, 2), STORED[3]])
    assert len([problem for problem in problems if "and was at" in problem]) == 2


def test_a_damaged_body_is_a_problem() -> None:
    problems, _, _ = judged([*STORED[:3], record(3, body=b"1 3;1 2;")])
    assert [problem for problem in problems if "damaged body" in problem]


def test_what_one_recovery_found_is_still_there_after_the_next_cut() -> None:
    _, ledger, _ = judged()
    ledger.cut(PowerCut(CUT_AT * 2))
    problems = ledger.judge(Recovered(300), STORED[:3], 0)
    assert problems == ["message (1, 3) was there after the last recovery and is lost"]


def test_what_one_recovery_did_not_find_never_comes_back() -> None:
    _, ledger, _ = judged(STORED[:3])
    ledger.cut(PowerCut(CUT_AT * 2))
    problems = ledger.judge(Recovered(400), STORED, 0)
    assert [problem for problem in problems if "has come back" in problem]


def test_what_was_deleted_may_come_back_or_not() -> None:
    _, ledger, _ = judged()
    ledger.cut(PowerCut(CUT_AT * 2))
    assert ledger.judge(Recovered(400), STORED[2:], 200) == []
    ledger.cut(PowerCut(CUT_AT * 3))
    assert ledger.judge(Recovered(400), STORED, 200) == []


def test_a_committed_offset_is_within_the_queue_and_over_no_message_that_nobody_acknowledged() -> None:
    assert judged(groups=(("events", 0, 2, 0, 4),), acknowledged=(0, 1))[0] == []
    assert "is not from 0 to 4" in judged(groups=(("events", 0, 5, 0, 4),), acknowledged=(0, 1, 2, 3))[0][0]
    assert "never acknowledged" in judged(groups=(("events", 0, 2, 0, 4),), acknowledged=(0,))[0][0]
