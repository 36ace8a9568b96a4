"""Who consumes from a store when another one takes its place: handlers give their queues back, and a server ends."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rmqclient import App, ReceivedMessage
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.replication import promotion
from rmqclient.store import open_store
from rmqclient.workers.exit_codes import ExitCode
from tests.replication.pairs import LIMIT_S, fill, follow, serve, until
from tests.support.stores import GROUP, SMALL, TOPIC

MEMBER = "tests.interop.serve.local_member"


@pytest.mark.guarantee("G81")
def test_a_handler_gives_its_queues_back_when_its_store_is_fenced_and_its_log_names_the_new_primary(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app, handled, may_end = App(), [], threading.Event()

    @app.handler(TOPIC, group=GROUP, threads=1)
    def handle(message: ReceivedMessage) -> None:
        handled.append(message.queue_offset)
        may_end.wait(LIMIT_S)

    with open_store(tmp_path, SMALL, housekeeping=False) as store:
        # Given a handler that runs, with many messages behind
        fill(store, 500)
        consumer = PushConsumer(store, app.handlers)
        consumer.start()
        until(lambda: handled, "the first message is handled")

        # When another store takes this one's place, while a message is handled
        store.fence("10.0.0.2", 1_000)
        until(lambda: "10.0.0.2 has epoch 1000" in caplog.text, "the log names the new primary")
        may_end.set()

        # Then no queue is left, and no further message begins
        until(lambda: not any(consumer.queues.values()), "the queues are given back")
        assert consumer.stop() == 0
        assert len(handled) < 100


@pytest.mark.sweep
@pytest.mark.guarantee("G81")
def test_a_server_ends_and_the_workers_beside_it_say_who_is_primary_when_a_promoted_replica_calls(
    tmp_path: Path,
) -> None:
    root, copy = tmp_path / "primary", tmp_path / "replica"
    with open_store(root, SMALL, housekeeping=False) as store:
        fill(store, 30)
        # Given a server, a worker in a process beside it, and a replica that has all
        with serve(root) as server, follow(copy, server) as follower, _member(root) as worker:
            until((copy / "replica.json").exists, "the replica is made")
            with open_store(copy, housekeeping=False) as replica:
                until(lambda: replica.state.published_to == store.state.published_to, "the replica has all")
            assert worker.stdout is not None
            for _ in range(31):  # that it is ready, and each message
                assert worker.stdout.readline()

            # When the replica is promoted
            follower.stop()
            promotion.promote(copy, force=True)

            # Then the server ends by itself, and the worker says who is primary
            assert server.wait() == ExitCode.STORE_CANNOT_BE_OPENED  # its unit does not start it again
            assert worker.stderr is not None
            assert any(re.search(r"has epoch 1\d{5}", line) for line in worker.stderr)
            worker.communicate("", LIMIT_S)
            assert worker.returncode == 0


def _member(root: Path) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", MEMBER, str(root), GROUP, TOPIC]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
