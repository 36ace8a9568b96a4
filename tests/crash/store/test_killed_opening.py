"""What is left after a process is killed while it opens or closes the store, alone, for every step of both.

These are the steps that happen with nobody else there: finding out what the last processes left, building the
runtime file, leaving in good order. Whatever dies there, the next one finds all messages and all acknowledgements.
"""

from __future__ import annotations

import itertools
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.layout import COPYING
from rmqclient.store.recovery.recovery import ABORT
from tests.crash.processes.nursery import Nursery, notes_of
from tests.crash.processes.order import Order
from tests.support.oracle import reference
from tests.support.oracle.views import acknowledged_bits, bodies, queued_records, stored_bodies
from tests.support.stores import GROUP, SMALL, SPAN, TOPIC, abandon, appender_of, body_of, grant_of
from tests.support.sweeps import crossed, each_step, is_taken

OPENING_OR_CLOSING = [
    CrashPoint.RECOVERY_PLANNED,
    CrashPoint.RECOVERY_TAIL_CUT,
    CrashPoint.RECOVERY_APPLIED,
    CrashPoint.FILE_ALLOCATED,
    CrashPoint.FLUSH_SYNCED,
    CrashPoint.OFFSETS_TEMPORARY,
    CrashPoint.CLOSE_CHECKPOINTED,
]

MESSAGES = 100
FINISHED = {0, 1, 2, *range(10, 90, 2)}


def close(store: MessageStore) -> None:
    """Leave in good order."""
    store.close()


def die_while_appending(store: MessageStore) -> None:
    """Leave an append under way as well; its bytes are not all there."""
    end = store.state.published_to
    base = store.log_files.base_of(end)
    store.state.append_from, store.state.written_to, store.state.append_stage = end, end + 200, COPYING
    memoryview(store.log_files.mapping(base))[end - base : end - base + 100] = b"?" * 100
    abandon(store)


def used_store(root: Path) -> MessageStore:
    """Open a new store and put messages in, of which a group acknowledges some, in no order."""
    store = open_store(root, SMALL, housekeeping=False)
    appender = appender_of(store)
    appender.append(Message(TOPIC, b"first"))
    store.flusher.flush_thorough()
    for number in range(1, MESSAGES):
        appender.append(Message(TOPIC, body_of(number)))
    grant = grant_of(store)
    grant.take(SPAN, SPAN)
    assert grant.acknowledge_offsets(sorted(FINISHED))
    return store


@pytest.mark.crash
@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G6")
@crossed("left, point, survive", [close, abandon, die_while_appending], OPENING_OR_CLOSING, [0, 1, 10])
def test_a_kill_during_opening_or_closing_loses_nothing(
    root: Path,
    nursery: Nursery,
    left: Callable[[MessageStore], None],
    point: CrashPoint,
    survive: int,
) -> None:
    # Given a store that everybody has left, and one who opens, appends and closes until it is killed
    left(used_store(root))
    order = Order(
        scenario="open_and_close",
        root=str(root),
        notes=str(root.with_name("notes")),
        point=point.name,
        survive=survive,
    )
    returned = len(nursery.kill_at_its_point(order))

    # Then the next one who opens it finds everything
    check_nothing_is_lost(root, returned)


@pytest.mark.crash
@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G6")
@each_step
@pytest.mark.parametrize("left", [close, abandon, die_while_appending])
def test_a_kill_at_any_line_of_opening_and_closing_loses_nothing(
    tmp_path: Path, nursery: Nursery, left: Callable[[MessageStore], None], steps: frozenset[int]
) -> None:
    status = None
    for line in itertools.count(1):
        if not is_taken(line, steps):
            continue
        # Given a store that everybody has left, and a process that opens it, appends and closes it, and is killed when
        # it reaches one line of the store for the first time
        root = tmp_path / f"line{line}"
        left(used_store(root))
        order = Order(scenario="open_and_close", root=str(root), notes=f"{root}.notes", kill_at_line=line, rounds=1)
        status = nursery.run(order)

        # Then the next one who opens it finds everything
        check_nothing_is_lost(root, len(notes_of(order)))
        if status != -signal.SIGKILL:
            break
        shutil.rmtree(root)

    # And that was so for every such line
    assert status == 0
    assert line > 400, "so few lines cannot be all of them"


@pytest.mark.crash
@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("survive", range(12))
def test_a_kill_while_the_store_is_made_leaves_a_store(root: Path, nursery: Nursery, survive: int) -> None:
    # Given the very first process, killed after one of the files that it makes
    order = Order(
        scenario="open_and_close",
        root=str(root),
        notes=str(root.with_name("notes")),
        point=CrashPoint.FILE_ALLOCATED.name,
        survive=survive,
    )
    notes = nursery.kill_at_its_point(order)

    # When somebody else opens it
    with open_store(root, SMALL, housekeeping=False) as store:
        appender_of(store).append(Message(TOPIC, b"after"))

    # Then what was acknowledged is there, and nothing is left over
    assert stored_bodies(root) == [*map(body_of, range(len(notes))), b"after"]
    assert reference.check_store(root) == []
    assert scratch_files(root) == []


def check_nothing_is_lost(root: Path, returned: int) -> None:
    """Open what a killed process left that had sent ``returned`` messages, and may have stored one more."""
    with open_store(root, housekeeping=False) as store:
        # Every message is there
        found = bodies(queued_records(store))
        acknowledged = [b"first", *map(body_of, range(1, MESSAGES)), *map(body_of, range(returned))]
        assert found in (acknowledged, [*acknowledged, body_of(returned)])

        # So is every acknowledgement
        grant = grant_of(store)
        assert grant.committed_offset == 3
        assert acknowledged_bits(store, GROUP) == FINISHED - {0, 1, 2}
        assert {message.queue_offset for message in grant.take(SPAN, SPAN)} == set(range(len(found))) - FINISHED

        # And it takes messages
        appender_of(store).append(Message(TOPIC, b"after"))
    assert reference.check_store(root) == []
    assert stored_bodies(root) == [*found, b"after"]
    assert not (root / ABORT).exists()
    assert scratch_files(root) == []


def scratch_files(root: Path) -> list[str]:
    return (
        [path.name for path in root.glob(".*")]
        + [path.name for path in root.rglob("*.tmp")]
        + [path.name for path in root.glob("*.building")]
    )
