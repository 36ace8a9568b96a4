"""Clients of a server, as many kinds as there are, until standard input ends; counts what they did.

``python -m tests.torture.served.child_soak rocketmq://HOST:PORT`` prints one line of JSON at its end. Members come and
go, and connections that ask one question are opened and closed, because what a server forgets to free is freed there.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from rmqclient import App, Message, Producer, PullConsumer, ReceivedMessage
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.errors import QueueError

TOPIC, GROUP = "Soak", "soak"
_QUEUES = 8
_PAUSE_S = 0.01
_MEMBER_S = 20.0
_STRANGER_S = 1.0
_LATER_LEVEL = 2
"""Five seconds."""


class Clients:
    """What the clients of one server do, each in a thread, until :meth:`stop`."""

    def __init__(self, place: str) -> None:
        self.counts: Counter[str] = Counter()
        self._place = place
        self._stopped = threading.Event()
        works = (self.send, self.send_batches, self.send_for_later, self.stay, self.come_and_go, self.ask)
        self._threads = [threading.Thread(target=self._until_stopped, args=(work,)) for work in works]

    def start(self) -> None:
        """Make the topic, and start everybody."""
        with Producer(self._place) as producer:
            producer.create_topic(TOPIC, _QUEUES)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End everybody in order."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def send(self) -> None:
        """Send one by one over one connection."""
        with Producer(self._place) as producer:
            while not self._stopped.wait(_PAUSE_S):
                producer.send(Message(TOPIC, bytes(100), tags="one", keys=[str(self.counts["sent"])]))
                self.counts["sent"] += 1

    def send_batches(self) -> None:
        """Send ten at once."""
        with Producer(self._place) as producer:
            while not self._stopped.wait(_PAUSE_S * 10):
                producer.send_batch([Message(TOPIC, bytes(100), tags="batch") for _ in range(10)])
                self.counts["sent in batches"] += 10

    def send_for_later(self) -> None:
        """Send what waits for some seconds in the server."""
        with Producer(self._place) as producer:
            while not self._stopped.wait(_PAUSE_S * 10):
                producer.send(Message(TOPIC, bytes(100), tags="later"), delay_level=_LATER_LEVEL)
                self.counts["sent for later"] += 1

    def stay(self) -> None:
        """Be a member of the group all the time."""
        self._be_member(None)

    def come_and_go(self) -> None:
        """Join the group, and leave it."""
        while not self._stopped.is_set():
            self._be_member(_MEMBER_S)
            self.counts["members that left"] += 1

    def ask(self) -> None:
        """Open a connection, read some messages, and close it."""
        while not self._stopped.wait(_STRANGER_S):
            with PullConsumer(self._place, group="strangers") as consumer:
                for queue in consumer.queues(TOPIC):
                    end = consumer.max_offset(queue)
                    found = consumer.pull(queue, max(0, end - 8), limit=8)
                    self.counts["pulled by strangers"] += len(found.messages)
            self.counts["connections of strangers"] += 1

    def _be_member(self, for_s: float | None) -> None:
        app = App(self._place)

        @app.handler(TOPIC, group=GROUP, threads=2)
        def handle(_message: ReceivedMessage) -> None:
            self.counts["handled"] += 1

        consumer = PushConsumer(self._place, app.handlers)
        consumer.start()
        self._stopped.wait(for_s)
        consumer.stop_taking()
        consumer.drain(10)
        consumer.close()

    def _until_stopped(self, work: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            try:
                work()
            except QueueError as error:
                self.counts[f"errors: {type(error).__name__}"] += 1
                print(error, file=sys.stderr)
                time.sleep(1.0)


def main(place: str) -> None:
    """Run the clients until the parent ends or lets go."""
    clients = Clients(place)
    clients.start()
    sys.stdin.read()
    clients.stop()
    print(json.dumps(clients.counts), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
