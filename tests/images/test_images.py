"""A small number of images of power cuts: recovered, judged, and the judge shown that it can be wrong."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.store import MessageQueue
from tests.images import scenario
from tests.images.image import UNITS, Image, torn
from tests.images.judge import Judge, judge_progress, judge_queues, walk_known
from tests.images.ledger import Known, Ledger
from tests.images.timeline import Steps, Timeline, Track
from tests.images.workload import CONFIG
from tests.support.sweeps import share_of

SEED = int(os.environ.get("RMQ_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
IMAGES = share_of(600)
PER_LIFE = 50


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is some: what a disk could lose is simulated."""
    with tempfile.TemporaryDirectory(dir=scenario.memory() or tmp_path) as directory:
        yield Path(directory)


@pytest.mark.crash
@pytest.mark.guarantee("G2")
@pytest.mark.guarantee("G4")
@pytest.mark.guarantee("G6")
def test_whatever_a_power_cut_leaves_is_recovered(scratch: Path) -> None:
    print(f"python -m tests.images --seed {SEED} --images {IMAGES} --images-per-life {PER_LIFE}")
    figures = scenario.run(SEED, IMAGES, scratch, PER_LIFE)
    assert figures.problems == []
    assert figures.images == IMAGES


def test_an_image_is_drawn_again_from_its_number_alone(scratch: Path) -> None:
    last_of_many, alone = drawn(scratch / "many", range(25))[-1], drawn(scratch / "one", range(24, 25))[-1]
    assert alone == last_of_many


def drawn(scratch: Path, wanted: range) -> list[tuple[str, list[str]]]:
    """Return kinds and names of the images of a scenario; their bytes hold times, and differ."""
    found: list[tuple[str, list[str]]] = []
    lives = scenario.Scenario(7, 0, scratch, scenario.Figures(), 10)
    put = lives._judge.put

    def note(image: Image) -> None:
        found.append((image.kind, sorted(path for path in image.files if not path.startswith("index/"))))
        put(image)

    lives._judge.put = note  # type: ignore[method-assign]
    lives.run(wanted)
    return found


# --- what a disk can hold -------------------------------------------------------------------------


def test_what_was_synced_stays_and_what_changed_since_may_have_any_of_its_values() -> None:
    file: Track[bytes] = Track(b"")
    for moment, content in enumerate([b"a", b"b", b"c", b"d"]):
        file.note(moment, content)
    assert file.durable(3) == b""
    file.sync(1)  # while c was not written
    assert file.durable(1) == b"", "the disk has not answered yet"
    assert (file.durable(2), file.since(2)) == (b"b", [b"c"])
    assert (file.durable(3), file.since(3)) == (b"b", [b"c", b"d"])


def test_a_new_file_of_the_log_has_its_length_and_a_new_file_of_settings_has_none() -> None:
    timeline = Timeline()
    timeline.moment = 1
    timeline.note_file("commitlog", 1, b"record")
    timeline.note_file("config", 2, b"{}")
    assert [timeline.files[inode].durable(1) for inode in (1, 2)] == [bytes(6), b""]


@pytest.mark.parametrize("unit", UNITS)
def test_a_torn_file_has_whole_units_of_any_version(unit: int) -> None:
    size = 3 * UNITS[-1] - 100
    versions = [bytes((number,)) * size for number in range(4)]
    seen = set()
    for seed in range(20):
        content = torn(versions, unit, random.Random(seed))
        units = [content[at : at + unit] for at in range(0, size, unit)]
        assert all(len(set(each)) == 1 for each in units)
        seen |= set(content)
    assert seen == {0, 1, 2, 3}


# --- the judge ------------------------------------------------------------------------------------

QUEUE = MessageQueue("orders", 0)
RECORDS = [Known(number * 100, bytes((number + 1,)) * 100, QUEUE, number, bytes(20), ("key",)) for number in range(5)]


def ledger_of(records: list[Known], promised: int) -> Ledger:
    ledger = Ledger(CONFIG.commit_log_file_bytes, {})
    for known in records:
        ledger.add(known)
    ledger.promise(1, promised)
    return ledger


def problems_of(content: bytes, ledger: Ledger, scratch: Path) -> list[str]:
    judge = Judge(scratch / "judged", CONFIG)
    files = {f"commitlog/{0:020d}": content.ljust(CONFIG.commit_log_file_bytes, b"\0")}
    return judge.judge_log(files, ledger, 1).problems


def test_a_prefix_of_what_was_sent_is_right_down_to_what_was_promised(scratch: Path) -> None:
    content = b"".join(known.content for known in RECORDS[:3])
    assert problems_of(content, ledger_of(RECORDS, 300), scratch) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"".join(known.content for known in RECORDS[:2]), "promised up to 300"),
        (b"".join(known.content for known in RECORDS[:3]) + b"x" * 100, "no record that is known"),
        (RECORDS[0].content + b"x" + RECORDS[1].content[1:], "no record that is known"),
        (bytes(100) + RECORDS[1].content, "promised up to 300"),
    ],
    ids=["lost", "phantom", "altered", "a hole"],
)
def test_what_is_lost_or_was_never_sent_is_found(scratch: Path, content: bytes, problem: str) -> None:
    assert problem in "; ".join(problems_of(content, ledger_of(RECORDS, 300), scratch))


def test_a_record_behind_one_that_was_undone_is_found() -> None:
    undone = Known(100, b"u" * 100, QUEUE, 1, bytes(20), (), replaced_at=1)
    ledger = ledger_of(RECORDS, 100)
    ledger.known[100].append(undone)
    log = {0: RECORDS[0].content + undone.content + RECORDS[2].content}
    assert walk_known({0: RECORDS[0].content + undone.content}, ledger, 1).problems == []
    assert "undone" in "; ".join(walk_known(log, ledger, 1).problems)


def test_entries_that_do_not_belong_to_the_records_are_found() -> None:
    path = f"consumequeue/orders/0/{0:020d}"
    records = [Known(0, b"r", QUEUE, 0, b"e" * 20, ())]
    size = CONFIG.consume_queue_file_bytes
    assert judge_queues({path: (b"e" * 20).ljust(size, b"\0")}, records, size) == []
    assert judge_queues({path: bytes(size)}, records, size) != []
    assert judge_queues({path: (b"e" * 40).ljust(size, b"\0")}, records, size) != []
    assert judge_queues({}, records, size) != []


def test_progress_that_nobody_made_is_found() -> None:
    ledger = Ledger(CONFIG.commit_log_file_bytes, {})
    ledger.ceilings["billing", QUEUE] = Steps(5)
    ledger.floors["billing", QUEUE] = Steps(3)
    for committed, high, is_right in ((4, 9, True), (6, 9, False), (2, 9, False), (2, 2, True), (6, 5, True)):
        found = judge_progress({("billing", QUEUE): committed}, {QUEUE: (0, high)}, ledger, 1)
        assert (found == []) is is_right
