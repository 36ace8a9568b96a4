"""Worker files: the heartbeats of supervised workers of a cluster, without a store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmqclient.admin.worker_files import SLOTS, WorkerFiles
from rmqclient.metrics.readings import USUAL, readings_of_workers
from rmqclient.store import WorkerState
from rmqclient.store.errors import TableFull
from tests.support.host.small_disks import Filler, small_disk_or_skip

SUPERVISOR = """
import sys
from pathlib import Path
from rmqclient.admin.worker_files import WorkerFiles
files = WorkerFiles(Path(sys.argv[1]))
print(files.claim(), flush=True)
sys.stdin.read()
"""

CLAIMING = """
import sys
from pathlib import Path
from rmqclient.admin.worker_files import WorkerFiles
WorkerFiles(Path(sys.argv[1])).claim("worker")
"""


def test_a_worker_reports_to_its_supervisor(tmp_path: Path) -> None:
    supervisor = WorkerFiles(tmp_path)
    slot = supervisor.claim()
    supervisor.assign(slot, 4711)
    assert supervisor.status(slot).state is WorkerState.STARTING
    assert supervisor.status(slot).beat_age_ms is None
    worker = WorkerFiles(tmp_path).attach(slot)
    worker.set_state(WorkerState.READY)
    worker.report(in_flight=2, handled=30, failed=4, message_started_ns=1)
    worker.beat()
    status = supervisor.status(slot)
    assert (status.pid, status.state) == (4711, WorkerState.READY)
    assert (status.in_flight, status.handled, status.failed) == (2, 30, 4)
    assert status.beat_age_ms is not None
    assert status.beat_age_ms < 10_000
    assert status.message_age_ms


def test_an_onlooker_sees_the_workers_of_every_living_supervisor(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SUPERVISOR, str(tmp_path)]
    onlooker = WorkerFiles(tmp_path)
    own = onlooker.claim()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        slot = int(other.stdout.readline())
        assert slot != own
        assert [status.slot for status in onlooker.all()] == [own, slot]
        other.kill()
        other.wait()
        assert [status.slot for status in onlooker.all()] == [own]
    onlooker.release(own)
    assert not onlooker.all()


def test_a_slot_of_a_dead_supervisor_is_taken_again_and_begins_anew(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SUPERVISOR, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        slot = int(other.stdout.readline())
        WorkerFiles(tmp_path).attach(slot).report(in_flight=9, handled=9, failed=9, message_started_ns=9)
        other.kill()
        other.wait()
    files = WorkerFiles(tmp_path)
    assert files.claim() == slot
    assert files.status(slot).handled == 0
    files.close()
    assert not list(tmp_path.iterdir())


def test_there_are_slots_for_so_many_workers(tmp_path: Path) -> None:
    files = WorkerFiles(tmp_path)
    for _ in range(SLOTS):
        files.claim()
    with pytest.raises(TableFull, match="256"):
        files.claim()


def test_counts_go_on_when_a_worker_is_started_again(tmp_path: Path) -> None:
    # Given two workers that have handled something, of which one ends
    supervisor = WorkerFiles(tmp_path)
    for name, handled in (("worker-1", 30), ("worker-2", 5)):
        supervisor.attach(supervisor.claim(name)).report(in_flight=0, handled=handled, failed=1, message_started_ns=0)
    supervisor.release(0)

    # When it is started again, and handles more
    slot = supervisor.claim("worker-1", restarts=1)
    supervisor.attach(slot).report(in_flight=0, handled=2, failed=0, message_started_ns=0)

    # Then an onlooker reads what both have done
    series = {
        (family.metric.name, point.labels["worker"]): point.value
        for family in readings_of_workers(WorkerFiles(tmp_path).all(), "cluster", USUAL)
        for point in family.points
        if "worker" in point.labels
    }
    assert series["rmq_worker_handled_total", "worker-1"] == 32
    assert series["rmq_worker_failed_total", "worker-1"] == 1
    assert series["rmq_worker_restarts_total", "worker-1"] == 1
    assert series["rmq_worker_handled_total", "worker-2"] == 5
    supervisor.close()


def test_a_worker_on_a_full_disk_is_refused_and_started_later(tmp_path: Path) -> None:
    with small_disk_or_skip(tmp_path) as disk:
        (disk / "workers").mkdir()
        filler = Filler(disk)
        filler.fill()
        command = [sys.executable, "-c", CLAIMING, str(disk / "workers")]
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "StoreFull" in refused.stderr.splitlines()[-1]
        assert not list((disk / "workers").iterdir())
        filler.free()
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0
