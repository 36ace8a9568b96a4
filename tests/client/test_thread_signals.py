"""Which threads take the signals of a process that has a store open."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rmqclient import App, ReceivedMessage
from rmqclient.cluster.net.io_thread import IoThread
from rmqclient.metrics.listener import Listener
from rmqclient.metrics.source import Source
from rmqclient.replication.primary import Primary
from rmqclient.store import MessageStore, open_store
from tests.client.conftest import consuming, wait_for

FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGPROF}
SENT = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1}

WAITS_FOR_TERM = """
import signal, sys, threading
from rmqclient.store import open_store
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
with open_store(sys.argv[1]):
    print("open", flush=True)
    ended.wait()
"""
TRIES = 40


def blocked_in(thread: threading.Thread) -> set[signal.Signals]:
    """Return the signals that a thread of this process does not take."""
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text(encoding="ascii")
    mask = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigBlk")), 16)
    return {number for number in signal.Signals if mask >> (number - 1) & 1}


def see_that_it_takes_faults_alone(name: str) -> None:
    """Wait for the threads of a name, and until they have left the signals to the others."""

    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == name and thread.native_id]

    wait_for(threads, f"{name} runs")
    wait_for(lambda: all(blocked_in(thread) >= SENT for thread in threads()), f"{name} leaves the signals to others")
    assert not any(blocked_in(thread) & FAULTS for thread in threads())


@pytest.mark.parametrize("name", ["rmq-housekeeper", "rmq-upkeep", "rmq-task", "rmq-schedule", "rmq-timer"])
def test_the_threads_of_the_housekeeping_take_no_signals(tmp_path: Path, name: str) -> None:
    with open_store(tmp_path):
        see_that_it_takes_faults_alone(name)


def test_the_thread_that_answers_scrapes_takes_no_signals(tmp_path: Path) -> None:
    with open_store(tmp_path), Listener(Source(tmp_path), ("127.0.0.1", 0)):
        see_that_it_takes_faults_alone("rmq-metrics")


def test_the_thread_of_the_connections_takes_no_signals() -> None:
    thread = IoThread()
    try:
        see_that_it_takes_faults_alone("rmq-cluster-io")
    finally:
        thread.end()


def test_the_thread_that_replicas_connect_to_takes_no_signals(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        primary = Primary(store, "127.0.0.1", 0)
        primary.start()
        try:
            see_that_it_takes_faults_alone("rmq-ha-accept")
        finally:
            primary.close()


def test_a_process_that_a_handler_starts_takes_signals(tmp_path: Path) -> None:
    app, masks = App(tmp_path), list[str]()

    @app.handler("orders", group="audit")
    def start_process(_message: ReceivedMessage) -> None:
        masks.append(subprocess.check_output(["grep", "SigBlk", "/proc/self/status"], text=True))

    with app.producer() as producer, consuming(tmp_path, app):
        producer.send("orders", b"")
        wait_for(lambda: masks, "the process has said what it blocks")
    assert int(masks[0].split()[1], 16) == 0


def wait_for_role(store: MessageStore) -> None:
    keeper = store.housekeeper
    wait_for(lambda: keeper is not None and keeper.has_role, "this process has the role")


def test_a_process_that_becomes_the_housekeeper_hears_the_signal_of_that_moment(tmp_path: Path) -> None:
    for _ in range(TRIES):
        with open_store(tmp_path) as store:
            wait_for_role(store)
            command = [sys.executable, "-c", WAITS_FOR_TERM, str(tmp_path)]
            child = subprocess.Popen(command, stdout=subprocess.PIPE)
            assert child.stdout is not None
            child.stdout.readline()
        with child:
            # When this process closes, the other one starts the threads of the role
            child.send_signal(signal.SIGTERM)
            try:
                assert child.wait(20) == 0
            finally:
                child.kill()
