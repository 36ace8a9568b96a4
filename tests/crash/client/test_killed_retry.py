"""A kill while a failed message is stored for its retry: it is delivered once more, or twice, and never not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.admin import Admin
from rmqclient.failures.retry import retry_topic
from rmqclient.store import SCHEDULE_TOPIC, MessageStore, open_store
from rmqclient.store.crash_points import CrashPoint
from tests.client.conftest import SOON, consuming, wait_for
from tests.crash.processes.child_retry import GROUP, POLICIES, TOPIC
from tests.support.sweeps import each_seventh

BEFORE = [CrashPoint.APPEND_LOCKED, CrashPoint.RECORD_HALF_COPIED]
STORED = [CrashPoint.RECORDS_ANNOUNCED, CrashPoint.RECORDS_PUBLISHED, CrashPoint.APPEND_FINISHED]
ACKNOWLEDGED = [CrashPoint.ACK_ADVANCING, CrashPoint.ACK_CLEARED]


def end(store: MessageStore, topic: str) -> int:
    return sum(store.topics.max_offset(queue) for queue in store.topics.all_queues() if queue.topic == topic)


@pytest.mark.guarantee("G21")
@pytest.mark.parametrize(("point", "wait"), each_seventh(product([*BEFORE, *STORED, *ACKNOWLEDGED], POLICIES)))
def test_a_kill_anywhere_in_a_send_back_loses_no_message(tmp_path: Path, point: CrashPoint, wait: str) -> None:
    # Given a consumer that was killed while it sent its message back
    root = tmp_path / "store"
    with open_store(root) as store, Producer(store) as producer:
        producer.create_topic(TOPIC, 1)
        producer.send(Message(TOPIC, b"7"))
    command = [sys.executable, "-m", "tests.crash.processes.child_retry", str(root), point.name, wait]
    assert subprocess.run(command, timeout=120, check=False).returncode == -signal.SIGKILL

    # When another one takes over
    app, handled = App(root), list[tuple[str, int]]()

    @app.handler(TOPIC, group=GROUP, retry=SOON)
    def handle(message: ReceivedMessage) -> None:
        handled.append((message.queue.topic, message.delivery_attempt))

    def is_over() -> bool:
        waits = list(store.timer.pending()) or end(store, SCHEDULE_TOPIC) > end(store, retry_topic(GROUP))
        return not waits and all(queue.lag == 0 for queue in Admin(store).lag(GROUP))

    with open_store(root) as store, consuming(store, app):
        wait_for(lambda: handled and is_over(), "everything is handled")

    # Then it gets the message in place unless it was acknowledged, and from the retry topic if it was stored there
    in_place, retried = (TOPIC, 2), (retry_topic(GROUP), 2)
    expected = {*([] if point in ACKNOWLEDGED else [in_place]), *([] if point in BEFORE else [retried])}
    assert len(handled) == len(expected)
    assert set(handled) == expected
