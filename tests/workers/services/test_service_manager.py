"""What a service manager is told: ready when every worker is, how it goes, stopping, and that the loop turns."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient.admin.workers import WorkerState, WorkerStatus
from rmqclient.health.service_manager import ServiceManager
from rmqclient.workers.processes import reporting as reporting_module
from rmqclient.workers.processes.reporting import Reporting
from tests.broker.life.serving import serving
from tests.workers.services.told import Told
from tests.workers.supervised import Supervised, eventually, rmq


@pytest.mark.guarantee("G58")
def test_a_run_tells_that_it_is_ready_alive_and_stopping(
    tmp_path: Path, supervise: Callable[..., Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Told(str(tmp_path / "notify")) as manager:
        for name, value in manager.environment(watchdog_s=2).items():
            monkeypatch.setenv(name, value)
        workers = supervise("obedient", "--processes", "2", "--shutdown-timeout", "20s")
        assert manager.until("READY") == {"READY": "1", "STATUS": "2 of 2 workers ready"}
        assert len(workers.ready(2)) == 2, "it was ready when both were"
        manager.until("WATCHDOG", "1")
        os.kill(workers.pids()[1], signal.SIGKILL)
        manager.until("STATUS", "1 of 2 workers ready")
        manager.until("STATUS", "2 of 2 workers ready")
        workers.process.send_signal(signal.SIGTERM)
        stopping = manager.until("STOPPING", "1")
        assert int(stopping["EXTEND_TIMEOUT_USEC"]) > 20_000_000, "longer than --shutdown-timeout"
        assert workers.exit_code() == 0


@pytest.mark.guarantee("G58")
def test_a_supervisor_that_is_stopped_lets_its_watchdog_run_out(
    tmp_path: Path, supervise: Callable[..., Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Told(f"@rmq-test-{os.getpid()}") as manager:
        for name, value in manager.environment(watchdog_s=1).items():
            monkeypatch.setenv(name, value)
        workers = supervise("obedient", "--processes", "1")
        manager.until("READY")
        manager.until("WATCHDOG", "1")
        workers.process.send_signal(signal.SIGSTOP)
        while manager.next(1.0) is not None:  # what was on its way
            pass
        workers.process.send_signal(signal.SIGCONT)
        manager.until("WATCHDOG", "1")


def test_no_child_speaks_for_the_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with Told(str(tmp_path / "notify")) as manager:
        for name, value in manager.environment(watchdog_s=8).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
        with ServiceManager.of_this_process() as told:
            assert told.beat_interval_s == 2
            assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & os.environ.keys()
            told.status("two\nlines")
            assert manager.next(1) == {"STATUS": "two lines"}
            told.status("two\nlines")
            told.alive()
            told.alive()
            assert (manager.next(1), manager.next(0.01)) == ({"WATCHDOG": "1"}, None), "said once, and not too often"


def test_a_watchdog_of_another_process_is_not_fed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with Told(str(tmp_path / "notify")) as manager:
        for name, value in manager.environment(watchdog_s=8).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("WATCHDOG_PID", str(os.getppid()))
        with ServiceManager.of_this_process() as told:
            told.alive()
            assert (told.beat_interval_s, manager.next(0.01)) == (None, None)


@pytest.mark.parametrize("address", ["", "/nowhere/notify", "@nobody-listens"])
def test_a_manager_that_does_not_listen_is_no_error(address: str) -> None:
    with ServiceManager(address, watchdog_s=1) as told:
        told.ready("ready")
        told.alive()


@pytest.mark.guarantee("G58")
def test_a_worker_that_is_left_silent_starves_the_watchdog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Told(str(tmp_path / "notify")) as manager, ServiceManager(manager.name, watchdog_s=1e-9) as told:
        reporting = Reporting(told, beat_timeout_s=30)
        reporting.look(1, {0: worker(beat_age_s=59)})
        assert manager.until("WATCHDOG")
        assert reporting.is_well
        assert reporting.is_ready
        for _ in range(3):
            reporting.look(1, {0: worker(beat_age_s=61)})
        later = time.monotonic() + reporting_module.WELL_FOR_S
        monkeypatch.setattr(time, "monotonic", lambda: later)
        assert not reporting.is_well
        assert not reporting.is_ready
        while (message := manager.next(0.01)) is not None:
            assert "WATCHDOG" not in message


def test_the_log_says_every_interval_what_was_done(supervise: Callable[..., Supervised]) -> None:
    workers = supervise("obedient", "--processes", "1", "--report", "300ms")
    workers.ready(1)
    workers.logged(r"all workers are ready: 1\n")
    workers.send("a", "b")
    workers.logged(r"1 of 1 workers ready; handled [12], failed 0 since the last line; lag 0\n")


def test_the_log_says_that_a_group_is_paused(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    workers = supervise("obedient", "--processes", "1", "--report", "200ms")
    workers.send("a")
    workers.recorded("done a")
    rmq("group", "pause", "billing", "--store", str(workers.root))
    workers.logged("; paused: billing\n")
    again = supervise("obedient", "--processes", "1")
    again.logged("WARNING .*group billing is paused, so its handlers get nothing: rmq group resume billing\n")


def test_the_log_names_the_members_that_are_spare(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    # Given two workers, of which only one can have the queue
    rmq("topic", "create", "orders", "--queues", "1", "--store", str(tmp_path / "store"))
    workers = supervise("obedient", "--processes", "2", "--report", "200ms")

    # When the queue has an owner
    workers.logged(r"; lag 0; spare in billing: \S+ of 2\n")

    # Then the other worker is named, as in `rmq group assignment`
    def is_named() -> bool:
        shown = rmq("group", "assignment", "billing", "--store", str(workers.root), "-o", "jsonl")
        rows = [row for row in map(json.loads, shown.splitlines()) if row["topic"] == "orders"]
        spare = [row["client_id"] for row in rows if not row["queue_ids"]]
        return len(spare) == 1 and f"spare in billing: {spare[0]} of 2" in workers.log

    eventually(is_named, "the worker that has no queue", workers)


def test_probes_answer_whether_a_supervisor_is_alive_and_its_workers_ready(
    tmp_path: Path, supervise: Callable[..., Supervised]
) -> None:
    workers = supervise("obedient", "--processes", "1", "--metrics", "127.0.0.1:0")
    workers.logged(r"metrics: http://\S+/metrics")
    base = workers.log.partition("metrics: ")[2].partition("/metrics")[0]
    workers.ready(1)
    eventually(lambda: asked(f"{base}/ready") == (200, "1 of 1 workers ready\n"), "ready", workers)
    assert asked(f"{base}/live")[0] == 200
    assert asked(f"{base}/nothing") == (404, "ask for /metrics, /live, /ready\n")
    workers.send(f"wait {tmp_path / 'go'}")
    eventually(lambda: workers.records("began wait"), "a message in flight", workers)
    workers.process.send_signal(signal.SIGTERM)
    eventually(lambda: asked(f"{base}/ready")[0] == 503, "not ready", workers)
    assert asked(f"{base}/live")[0] == 200, "who drains is alive"
    (tmp_path / "go").touch()
    assert workers.exit_code() == 0


@pytest.mark.guarantee("G58")
def test_a_server_tells_that_it_serves_lives_and_stops(tmp_path: Path) -> None:
    with (
        Told(str(tmp_path / "notify")) as manager,
        serving(tmp_path, str(tmp_path / "store"), **manager.environment(watchdog_s=1)) as server,
    ):
        assert manager.until("READY")["STATUS"] == f"serving at {server.address}"
        manager.until("WATCHDOG", "1")
        server.process.send_signal(signal.SIGSTOP)
        while manager.next(1.0) is not None:
            pass
        server.process.send_signal(signal.SIGCONT)
        manager.until("WATCHDOG", "1")
        server.process.send_signal(signal.SIGTERM)
        manager.until("STOPPING", "1")
        assert server.ended() == 0


def worker(beat_age_s: float) -> WorkerStatus:
    return WorkerStatus(
        slot=0,
        pid=1,
        supervisor_pid=1,
        state=WorkerState.READY,
        beat_age_ms=beat_age_s * 1000,
        message_age_ms=None,
        in_flight=0,
        handled=0,
        failed=0,
        name="worker-1",
        restarts=0,
    )


def asked(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
