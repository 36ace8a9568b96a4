"""Processes that ask and answer, to be killed: ``python -m tests.groups.processes.request_child ROLE ROOT``.

A ``replier`` answers, a ``dying`` one kills itself behind its first answer, and a ``requester`` asks.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections import deque
from pathlib import Path

from rmqclient import App, Message, Producer, ReceivedMessage, RequestFuture
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import open_store
from tests.groups.processes.member import end_with_parent

TOPIC, GROUP = "questions", "answers"
WORK_S = 0.002
_AT_ONCE = 20


def answer_to(question: bytes) -> bytes:
    """Return the one right answer."""
    return question[::-1]


def reply(root: Path) -> None:
    """Answer until the kill. Each answer begins with the pid of the one who gave it."""
    app = App(root)

    @app.handler(TOPIC, group=GROUP, replies=True)
    def answer(message: ReceivedMessage) -> bytes:
        time.sleep(WORK_S)  # so that a kill finds a request in the middle of it
        return b"%d %s" % (os.getpid(), answer_to(message.body))

    serve(root, app)


def reply_and_die(root: Path) -> None:
    """Answer one request and die before it is acknowledged."""
    app = App(root)

    @app.handler(TOPIC, group=GROUP)
    def answer(message: ReceivedMessage) -> None:
        Producer(root).send_reply(message, b"%d %s" % (os.getpid(), answer_to(message.body)))
        os.kill(os.getpid(), signal.SIGKILL)

    serve(root, app)


def serve(root: Path, app: App) -> None:
    """Run the handlers until the kill."""
    with open_store(root) as store:
        PushConsumer(store, app.handlers, config=ConsumerConfig(liveness_interval_ms=50)).start()
        print("ready", flush=True)
        threading.Event().wait()


def request(root: Path) -> None:
    """Ask until the kill, some at once; say that it is ready when one is answered."""
    with Producer(root) as producer:
        producer.request(Message(TOPIC, b"?"), 60)
        waiting = deque[RequestFuture]()
        print("ready", flush=True)
        for number in itertools.count():
            waiting.append(producer.request_async(Message(TOPIC, b"%d of %d" % (number, os.getpid())), 60))
            if len(waiting) > _AT_ONCE:
                waiting.popleft().result()


if __name__ == "__main__":
    end_with_parent()
    {"replier": reply, "dying": reply_and_die, "requester": request}[sys.argv[1]](Path(sys.argv[2]))
