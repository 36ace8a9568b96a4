"""A consumer that is killed while it sends a message back: ``tests.crash.processes.child_retry ROOT POINT WAIT``.

Its handler raises, with the kill armed at a crash point of the append of the retry or of the acknowledgement after it.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from rmqclient import App, ReceivedMessage, RetryPolicy
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import open_store
from rmqclient.store.crash_points import CrashPoint, arm

TOPIC, GROUP = "orders", "billing"


POLICIES = {"level": RetryPolicy(delay_levels=(1,)), "delay": RetryPolicy(delays=(0.5,))}
"""By what a retry waits for: a delay level, or a delay in the timer."""


def main(root: Path, point: CrashPoint, wait: str) -> None:
    """Consume until the kill."""
    app = App(root)

    @app.handler(TOPIC, group=GROUP, retry=POLICIES[wait])
    def handle(message: ReceivedMessage) -> None:
        arm(point)
        raise ValueError(message.body)

    PushConsumer(open_store(root, housekeeping=False), app.handlers).start()
    while True:
        signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]), CrashPoint[sys.argv[2]], sys.argv[3])
