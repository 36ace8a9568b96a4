"""What the checker says of deliveries: lost, repeated, out of order, poison."""

from __future__ import annotations

import pytest

from tests.checker.history import Kind
from tests.checker.plan import MAX_RETRIES, Mode
from tests.checker.stories import poison_story
from tests.checker.story import (
    LEASE_MS,
    NEMESIS,
    OTHER_PRODUCER,
    OTHER_WORKER,
    WORKER,
    Story,
    good_story,
    message,
)

EACH_ORDER = pytest.mark.parametrize("mode", [Mode.ORDERED, Mode.KEYED])


def test_a_message_that_nobody_handled_is_lost() -> None:
    story = good_story()
    story.handle(WORKER, *range(5))
    assert story.found() == {"lost in delivery": 1}
    story.begin(WORKER, 5)
    assert story.found() == {"lost in delivery": 1}, "a call that never ended handles nothing"
    story.end(WORKER, 5, failed=True)
    assert story.found() == {"lost in delivery": 1}, "nor does one that failed"


def test_a_second_delivery_without_a_fault_is_found() -> None:
    story = good_story()
    story.handle(WORKER, *range(6))
    story.begin(WORKER, 5)
    story.end(WORKER, 5)
    assert story.found() == {"repeated without a fault": 1}


def test_a_fault_does_not_explain_the_repetition_of_what_was_committed() -> None:
    story = good_story()
    story.handle(WORKER, *range(6))
    story.kill(WORKER)
    story.grant(OTHER_WORKER, 2, committed=6)
    story.handle(OTHER_WORKER, 5, epoch=2)
    assert story.found() == {"repeated without a fault": 1}


def test_the_fault_of_another_process_explains_nothing() -> None:
    story = good_story()
    story.handle(WORKER, *range(5))
    story.begin(WORKER, 5)
    story.end(WORKER, 5)
    story.kill(OTHER_WORKER)
    story.handle(WORKER, 5)
    assert story.found() == {"repeated without a fault": 1}


def test_a_refusal_without_another_owner_explains_nothing() -> None:
    story = good_story()
    story.handle(WORKER, *range(5))
    story.begin(WORKER, 5)
    story.end(WORKER, 5)
    story.commit(WORKER, 5, refused=True)
    story.stop_past_the_lease(WORKER)
    story.handle(WORKER, 5)
    assert story.found() == {"repeated without a fault": 1}


def test_a_kill_repeats_no_more_than_was_in_flight() -> None:
    story = good_story()
    story.handle(WORKER, 0, 1, 2)
    for thread, offset in enumerate((3, 4, 5)):
        story.begin(WORKER, offset, thread=thread)
    story.kill(WORKER)
    story.grant(OTHER_WORKER, 2, committed=3)
    story.handle(OTHER_WORKER, 3, 4, 5, epoch=2)
    assert story.found() == {"repeated more than was in flight": 1}, "there are two threads"


def two_losses(story: Story) -> Story:
    """Let the worker lose the queue twice, each time with a message of each thread in flight."""
    story.kill(OTHER_PRODUCER)
    for epoch, offsets in ((1, (0, 1)), (3, (2, 3))):
        for thread, offset in enumerate(offsets):
            story.begin(WORKER, offset, thread=thread)
        story.wait(LEASE_MS + 100)
        story.grant(OTHER_WORKER, epoch + 1, committed=offsets[0])
        for offset in offsets:
            story.end(WORKER, offset)
            story.commit(WORKER, offset, epoch, refused=True)
        story.handle(OTHER_WORKER, *offsets, epoch=epoch + 1)
        story.write(OTHER_WORKER, Kind.RELEASE, subject=epoch + 1)
        story.grant(WORKER, epoch + 2, committed=offsets[1] + 1)
    story.handle(WORKER, 4, 5, epoch=5)
    return story


def test_each_lease_that_a_busy_machine_lets_run_out_repeats_what_was_in_flight() -> None:
    assert two_losses(good_story()).found() == {}


def test_a_stop_explains_no_more_than_was_in_flight() -> None:
    story = good_story()
    story.write(NEMESIS, Kind.STOP, subject=WORKER)
    assert two_losses(story).found() == {"repeated more than was in flight": 1}, "it lost the queue twice in one stop"


@EACH_ORDER
def test_overlapping_calls_break_the_order(mode: Mode) -> None:
    story = good_story(mode)
    story.handle(WORKER, 0, 1, 2, 3)
    for step in (story.begin, story.end):
        for thread, offset in enumerate((4, 5)):
            step(WORKER, offset, thread=thread)
    story.commit(WORKER, 4)
    story.commit(WORKER, 5)
    assert story.found() == {"reordered": 1}


@EACH_ORDER
def test_a_call_ahead_of_its_turn_breaks_the_order(mode: Mode) -> None:
    story = good_story(mode)
    story.handle(WORKER, 0, 2, 1, 3, 4, 5)
    assert story.found() == {"reordered": 2}, "2 is ahead of 1, and 3 does not follow 1"


def test_other_keys_may_overlap_and_overtake() -> None:
    story = Story(Mode.KEYED)
    story.send(range(3), key=1)
    story.send(range(3, 6), key=2)
    story.grant(WORKER, 1)
    story.begin(WORKER, 3, thread=1)
    story.handle(WORKER, 0, 1)
    story.end(WORKER, 3, thread=1)
    story.commit(WORKER, 3)
    story.handle(WORKER, 4, 5, 2)
    assert story.found() == {}


def test_a_committed_offset_beyond_what_was_handled_is_found() -> None:
    story = good_story()
    story.handle(WORKER, 0, 1)
    story.write(NEMESIS, Kind.SAMPLE, offset=3)
    story.handle(WORKER, 2, 3, 4, 5)
    assert story.found() == {"acknowledged too early": 1}


def test_an_acknowledgement_before_the_call_is_found() -> None:
    story = good_story()
    story.handle(WORKER, *range(5))
    story.commit(WORKER, 5)
    story.begin(WORKER, 5)
    story.end(WORKER, 5)
    assert story.found() == {"acknowledged too early": 1}


def failed_and_killed(*, killed: bool) -> dict[str, int]:
    story = good_story(Mode.POISON)
    story.begin(WORKER, 0)
    story.end(WORKER, 0, failed=True)
    if killed:
        story.kill(WORKER)
    story.wait(LEASE_MS + 100)
    story.grant(OTHER_WORKER, 2)
    story.commit(OTHER_WORKER, 0, epoch=2)
    story.handle(OTHER_WORKER, 1, 2, 3, 4, 5, epoch=2)
    return story.found()


def test_the_next_owner_may_acknowledge_a_call_that_failed_just_before_its_process_was_killed() -> None:
    assert failed_and_killed(killed=True).get("acknowledged too early") is None
    assert failed_and_killed(killed=False)["acknowledged too early"] >= 1


def test_a_late_refusal_is_not_taken_for_the_answer_to_the_next_call_of_the_same_message() -> None:
    # Given a call that ended, and its queue lost before the acknowledgement and granted to the same process again
    story = good_story()
    story.kill(OTHER_PRODUCER)
    story.begin(WORKER, 0)
    story.end(WORKER, 0)
    story.wait(LEASE_MS + 100)
    story.grant(WORKER, 2)
    # When another thread handles the message again before the first one is told
    story.begin(WORKER, 0, thread=1)
    story.end(WORKER, 0, thread=1)
    story.commit(WORKER, 0, refused=True)
    story.commit(WORKER, 0, epoch=2)
    story.handle(WORKER, 1, 2, 3, 4, 5, epoch=2)
    # Then nothing was acknowledged too early
    assert story.found().get("acknowledged too early") is None


def test_an_acknowledgement_with_an_old_epoch_is_found() -> None:
    story = good_story()
    story.handle(WORKER, *range(4))
    story.begin(WORKER, 4)
    story.stop_past_the_lease(WORKER)
    story.grant(OTHER_WORKER, 2, committed=4)
    story.handle(OTHER_WORKER, 5, epoch=2)
    story.end(WORKER, 4)
    story.commit(WORKER, 4, epoch=1)
    assert story.found() == {"stale acknowledgement": 1}


def test_poison_that_is_no_dead_letter_is_found() -> None:
    assert poison_story(MAX_RETRIES + 1, dead=False).found() == {"dead letter": 1, "lost in delivery": 1}


def test_a_dead_letter_that_was_tried_too_seldom_or_too_often_is_found() -> None:
    assert poison_story(MAX_RETRIES).found() == {"dead letter": 1}
    assert poison_story(MAX_RETRIES + 2).found() == {"dead letter": 1}


def test_a_message_that_is_more_than_one_dead_letter_is_found_unless_a_fault_explains_it() -> None:
    story = poison_story(MAX_RETRIES + 1)
    dead_letters = story.plan.queue_numbers["%DLQ%group0", 0]
    story.store(message(0), queue=dead_letters)
    assert story.found() == {"dead letter": 1}
    story.begin(OTHER_WORKER, 0)
    story.end(OTHER_WORKER, 0, failed=True)
    assert story.found() == {}, "its retry was stored, and then its worker was killed"


def test_a_dead_letter_that_never_failed_is_found() -> None:
    story = good_story(Mode.POISON)
    story.handle(WORKER, *range(6))
    story.store(message(5), queue=story.plan.queue_numbers["%DLQ%group0", 0])
    assert "dead letter" in story.found()
