"""The checker can fail: for each rule a history with one anomaly, made by hand, and the same without it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.checker.history import History, Kind, now, read
from tests.checker.plan import MAX_RETRIES, Mode
from tests.checker.rules.checks import RULES
from tests.checker.stories import poison_story
from tests.checker.story import LEASE_MS, NEMESIS, OTHER_PRODUCER, OTHER_WORKER, PRODUCER, WORKER, good_story, message


@pytest.mark.parametrize("mode", [Mode.CONCURRENT, Mode.ORDERED, Mode.KEYED])
def test_a_history_without_an_anomaly_has_none(mode: Mode) -> None:
    story = good_story(mode)
    story.write(WORKER, Kind.FIRST_TAKE, subject=1, offset=0)
    story.handle(WORKER, *range(6))
    story.write(PRODUCER, Kind.SAMPLE, offset=6)
    story.write(WORKER, Kind.RELEASE, subject=1)
    story.write(WORKER, Kind.EXIT)
    assert story.found() == {}


def test_a_send_that_never_returned_may_have_stored_its_batch_or_nothing() -> None:
    story = good_story()
    story.handle(WORKER, *range(6))
    story.write(PRODUCER, Kind.SEND, subject=message(6), detail=2)
    assert story.found() == {}
    story.store(message(6))
    story.store(message(7))
    story.handle(WORKER, 6, 7)
    assert story.found() == {}


@pytest.mark.parametrize("mode", [Mode.CONCURRENT, Mode.ORDERED, Mode.KEYED])
def test_what_a_killed_worker_had_begun_is_repeated_rightly(mode: Mode) -> None:
    story = good_story(mode)
    story.handle(WORKER, 0, 1)
    story.begin(WORKER, 2)
    story.kill(WORKER)
    story.grant(OTHER_WORKER, 2, committed=2)
    story.write(OTHER_WORKER, Kind.FIRST_TAKE, subject=2, offset=2)
    story.handle(OTHER_WORKER, 2, 3, 4, 5, epoch=2)
    assert story.found() == {}


def test_a_call_of_a_lost_grant_is_explained_though_its_process_has_the_queue_again() -> None:
    story = good_story(Mode.ORDERED)
    story.handle(WORKER, 0)
    story.stop_past_the_lease(WORKER)
    story.grant(OTHER_WORKER, 2, committed=1)
    story.handle(OTHER_WORKER, 1, 2, epoch=2)
    story.kill(OTHER_WORKER)
    story.write(WORKER, Kind.LOST, subject=1)
    story.grant(WORKER, 3, committed=3)
    story.begin(WORKER, 1, thread=1)
    story.end(WORKER, 1, thread=1)
    story.commit(WORKER, 1, epoch=1, refused=True)
    story.handle(WORKER, 3, 4, 5, epoch=3)
    assert story.found() == {}


def test_a_killed_worker_may_begin_a_call_until_it_is_gone() -> None:
    story = good_story()
    story.handle(WORKER, 0, 1)
    story.write(NEMESIS, Kind.KILL, subject=WORKER)
    story.begin(WORKER, 2)
    story.write(NEMESIS, Kind.KILLED, subject=WORKER)
    story.grant(OTHER_WORKER, 2, committed=2)
    story.handle(OTHER_WORKER, 2, 3, 4, 5, epoch=2)
    assert story.found() == {}


def test_a_stop_and_the_kill_after_it_repeat_what_was_in_flight_at_each() -> None:
    # Given two calls during which the queue is lost, and two others of the same worker that a kill ends
    story = good_story()
    story.begin(WORKER, 0)
    story.begin(WORKER, 1, thread=1)
    story.stop_past_the_lease(WORKER)
    story.grant(OTHER_WORKER, 2)
    story.handle(OTHER_WORKER, 0, 1, epoch=2)
    for offset in (0, 1):
        story.end(WORKER, offset)
        story.commit(WORKER, offset, refused=True)
    story.write(OTHER_WORKER, Kind.RELEASE, subject=2)
    story.grant(WORKER, 3, committed=2)
    story.begin(WORKER, 2)
    story.begin(WORKER, 3, thread=1)
    story.kill(WORKER)
    story.grant(OTHER_WORKER, 4, committed=2)
    story.handle(OTHER_WORKER, 2, 3, 4, 5, epoch=4)
    # Then no fault repeated more than the two threads had in flight
    assert story.found() == {}


@pytest.mark.parametrize("mode", [Mode.CONCURRENT, Mode.ORDERED, Mode.KEYED])
def test_what_a_worker_stopped_past_its_lease_goes_on_with_is_repeated_rightly(mode: Mode) -> None:
    # Given a worker that is stopped in a handler call, and loses its queue
    story = good_story(mode)
    story.handle(WORKER, 0)
    story.begin(WORKER, 1)
    story.stop_past_the_lease(WORKER)
    story.grant(OTHER_WORKER, 2, committed=1)
    story.handle(OTHER_WORKER, 1, 2, 3, epoch=2)
    # When it goes on, ends that call and, before it knows, makes another one
    story.end(WORKER, 1)
    story.commit(WORKER, 1, refused=True)
    story.begin(WORKER, 2, thread=1)
    story.end(WORKER, 2, thread=1)
    story.commit(WORKER, 2, refused=True)
    story.handle(OTHER_WORKER, 4, 5, epoch=2)
    # Then that is explained
    assert story.found() == {}


def test_poison_is_tried_as_often_as_it_may_and_is_a_dead_letter() -> None:
    assert poison_story(MAX_RETRIES + 1).found() == {}


def test_a_sent_message_that_is_not_stored_is_lost() -> None:
    story = good_story()
    story.handle(WORKER, *range(6))
    story.write(PRODUCER, Kind.SEND, subject=message(6), detail=1)
    story.write(PRODUCER, Kind.SENT, subject=message(6), detail=1, offset=6)
    assert story.found() == {"lost from the store": 1}


def test_a_stored_message_that_nobody_sent_is_a_phantom() -> None:
    story = good_story()
    story.store(message(0, OTHER_PRODUCER))
    story.handle(WORKER, *range(7))
    assert story.found() == {"phantom": 1}


def test_a_stored_message_whose_send_failed_is_a_phantom() -> None:
    story = good_story()
    story.write(PRODUCER, Kind.SEND, subject=message(6), detail=1)
    story.write(PRODUCER, Kind.SEND_FAILED, subject=message(6), detail=1)
    story.store(message(6))
    story.handle(WORKER, *range(7))
    assert story.found() == {"phantom": 1}


def test_a_handled_message_that_stands_nowhere_is_a_phantom() -> None:
    story = good_story()
    story.handle(WORKER, *range(6))
    story.begin(WORKER, 6, subject=message(6))
    assert story.found() == {"phantom": 1}


def test_a_body_that_is_not_what_was_sent_is_damage() -> None:
    story = good_story()
    story.handle(WORKER, *range(5))
    story.begin(WORKER, 5, right=False)
    story.end(WORKER, 5)
    story.commit(WORKER, 5)
    assert story.found() == {"damaged": 1}
    story.damaged.append("the record at 0 is damaged")
    assert story.found() == {"damaged": 2}


def test_a_message_at_two_places_is_stored_twice() -> None:
    story = good_story()
    story.store(message(5))
    story.handle(WORKER, *range(6))
    story.commit(WORKER, 6)
    assert "stored twice" in story.found()


def test_an_offset_that_its_send_did_not_say_is_inconsistent() -> None:
    story = good_story()
    story.write(PRODUCER, Kind.SEND, subject=message(6), detail=1)
    story.store(message(6))
    story.write(PRODUCER, Kind.SENT, subject=message(6), detail=1, offset=5)
    story.handle(WORKER, *range(7))
    assert story.found() == {"inconsistent offset": 1}


def test_an_offset_that_differs_for_a_handler_is_inconsistent() -> None:
    story = good_story()
    story.handle(WORKER, *range(5))
    story.begin(WORKER, 4, subject=message(5))
    story.end(WORKER, 4, subject=message(5))
    story.commit(WORKER, 4)
    assert story.found() == {"inconsistent offset": 1}


def test_a_send_that_returned_before_another_began_has_the_lower_offset() -> None:
    story = good_story()
    for producer, offset in ((PRODUCER, 7), (OTHER_PRODUCER, 6)):
        subject = message(6 if producer == PRODUCER else 0, producer)
        story.write(producer, Kind.SEND, subject=subject, detail=1)
        story.store(subject, offset)
        story.write(producer, Kind.SENT, subject=subject, detail=1, offset=offset)
    story.handle(WORKER, *range(8))
    assert story.found() == {"append not linearizable": 1}


def test_messages_of_a_producer_stand_in_its_order() -> None:
    story = good_story()
    for number, offset in ((6, 7), (7, 6)):
        story.write(PRODUCER, Kind.SEND, subject=message(number), detail=1)
        story.store(message(number), offset)
    story.handle(WORKER, *range(8))
    assert story.found() == {"producer's order": 1}


def test_a_part_of_a_batch_is_a_torn_batch() -> None:
    story = good_story()
    story.write(PRODUCER, Kind.SEND, subject=message(6), detail=2)
    story.store(message(6))
    story.handle(WORKER, *range(7))
    assert story.found() == {"torn batch": 1}


def test_a_batch_with_others_inside_is_a_torn_batch() -> None:
    story = good_story()
    story.write(PRODUCER, Kind.SEND, subject=message(6), detail=2)
    story.write(OTHER_PRODUCER, Kind.SEND, subject=message(0, OTHER_PRODUCER), detail=1)
    for subject in (message(6), message(0, OTHER_PRODUCER), message(7)):
        story.store(subject)
    story.handle(WORKER, *range(9))
    assert story.found() == {"torn batch": 1}


def test_an_entry_that_does_not_belong_to_its_record_is_misplaced() -> None:
    story = good_story()
    story.handle(WORKER, *range(6))
    story.misplaced.append("queue 0: entry 3 is wrong")
    assert story.found() == {"misplaced entry": 1}


def test_a_new_owner_that_begins_behind_the_committed_offset_is_found() -> None:
    story = good_story()
    story.handle(WORKER, 0, 1)
    story.write(WORKER, Kind.RELEASE, subject=1)
    story.grant(OTHER_WORKER, 2, committed=2)
    story.write(OTHER_WORKER, Kind.FIRST_TAKE, subject=2, offset=4)
    story.handle(OTHER_WORKER, 4, 5, 2, 3, epoch=2)
    assert story.found() == {"poll skip": 1}


def test_a_committed_offset_that_falls_is_found() -> None:
    story = good_story()
    story.handle(WORKER, *range(6))
    for offset in (4, 3, 6):
        story.write(NEMESIS, Kind.SAMPLE, offset=offset)
    assert story.found() == {"offset regress": 1}


def test_an_offset_that_was_not_kept_is_found() -> None:
    story = good_story()
    story.handle(WORKER, *range(6))
    story.committed[0, 0] = 5
    assert story.found() == {"offset not kept": 1}


def test_two_owners_at_a_time_are_found() -> None:
    story = good_story()
    story.handle(WORKER, 0, 1)
    story.grant(OTHER_WORKER, 2, committed=2)
    story.handle(OTHER_WORKER, 2, 3, 4, 5, epoch=2)
    assert story.found() == {"two owners": 1}


def test_a_renewed_lease_still_counts() -> None:
    story = good_story()
    story.handle(WORKER, *range(6))
    story.wait(LEASE_MS)
    story.write(WORKER, Kind.RENEW, subject=1)
    story.wait(LEASE_MS // 2)
    story.grant(OTHER_WORKER, 2, committed=6)
    assert story.found() == {"two owners": 1}


def test_one_epoch_for_two_owners_is_found() -> None:
    story = good_story()
    story.handle(WORKER, *range(6))
    story.write(WORKER, Kind.RELEASE, subject=1)
    story.grant(OTHER_WORKER, 1, committed=6)
    assert story.found() == {"two owners": 1}


def test_a_run_that_stands_still_is_found() -> None:
    story = good_story()
    story.handle(WORKER, *range(6))
    story.outcome.stalled.append("nothing moved for 20 s")
    assert story.found() == {"stall": 1}


def test_a_process_that_ended_by_itself_is_found() -> None:
    story = good_story()
    story.handle(WORKER, *range(6))
    story.outcome.died[WORKER] = "worker 3 ended by itself with status -11"
    assert story.found() == {"died": 1}


def test_what_a_process_keeps_of_the_store_is_found() -> None:
    story = good_story()
    story.handle(WORKER, *range(6))
    story.write(WORKER, Kind.RELEASE, subject=1)
    story.write(WORKER, Kind.EXIT, offset=1)
    story.write(OTHER_WORKER, Kind.EXIT, detail=1)
    assert story.found() == {"leak": 2}


def test_every_rule_was_seen_to_fail() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_checker*.py"))
    assert [anomaly for anomaly in RULES if f'"{anomaly}"' not in source] == []


def test_a_killed_process_leaves_its_whole_records(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        history = History(tmp_path, 7)
        for number in range(10_000):
            history.write(Kind.HANDLE, now(), subject=number, offset=-1, queue=3, thread=2)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    records = read(tmp_path, 7)
    assert np.array_equal(records["subject"], np.arange(10_000))
    assert set(records["offset"]) == {-1}
    assert set(records["kind"]) == {Kind.HANDLE}


def test_a_record_that_was_not_finished_is_left_out(tmp_path: Path) -> None:
    history = History(tmp_path, 7)
    history.write(Kind.HANDLE, now(), subject=1)
    history.write(0, now(), subject=2)
    history.write(Kind.HANDLED, now(), subject=3)
    assert read(tmp_path, 7)["subject"].tolist() == [1, 3]
    assert len(read(tmp_path, 8)) == 0
