"""What surrounds a producer's sender: every send goes through it, and its end is the producer's."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from rmqclient import Message, Producer
from rmqclient.backend import Backend
from rmqclient.backend.around import Outgoing
from rmqclient.message import SendResult
from rmqclient.opening import open_backend
from rmqclient.sending import producer as producing
from rmqclient.sending.middleware import Sending
from rmqclient.store.bodies import Compression
from rmqclient.tracing import observers
from rmqclient.tracing.observers import Observer

FORKED_S = 60


class Watching:
    """An observer that notes what it is told."""

    def __init__(self) -> None:
        self.seen: list[Outgoing] = []
        self.closed_by: list[int] = []
        self.messages: Sequence[Message] = ()

    def send(self, outgoing: Outgoing) -> Watching:
        self.seen.append(outgoing)
        self.messages = outgoing.messages
        return self

    def process(self, *_: object) -> AbstractContextManager[object]:
        return nullcontext()

    def receive(self, *_: object) -> None:
        """See nothing."""

    def decide(self, *_: object, **__: object) -> None:
        """See nothing."""

    def end(self, results: Sequence[SendResult]) -> None:
        """See nothing."""

    def fail(self, error: BaseException) -> None:
        """See nothing."""

    def close(self) -> None:
        self.closed_by.append(os.getpid())


@pytest.fixture
def watching() -> Iterator[Watching]:
    """The observer of every producer that is made."""
    found = Watching()
    observers.install(lambda _: found)
    yield found
    observers.install(None)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Backend]:
    """The backends that producers have opened."""
    found: list[Backend] = []

    def opening(*arguments: object) -> Backend:
        found.append(open_backend(*arguments))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(producing, "open_backend", opening)
    return found


def test_a_producer_closes_every_observer(tmp_path: Path, watching: Watching) -> None:
    producer = Producer(tmp_path, message_trace=True)
    producer.send(Message("orders", b"x"))
    assert not watching.closed_by
    producer.close()
    assert watching.closed_by == [os.getpid()]


def test_a_forked_child_closes_no_observer_of_its_parent(tmp_path: Path, watching: Watching) -> None:
    with Producer(tmp_path, message_trace=True) as producer:
        producer.send(Message("orders", b"x"))  # the trace has a thread now
        pid = os.fork()
        if pid == 0:
            signal.alarm(FORKED_S)
            producer.close()
            os._exit(len(watching.closed_by))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert watching.closed_by == [os.getpid()]


def test_nothing_stays_open_when_an_observer_cannot_be_made(tmp_path: Path, opened: list[Backend]) -> None:
    def fail(_: object) -> Observer:
        raise RuntimeError("no provider")

    observers.install(fail)
    try:
        with pytest.raises(RuntimeError, match="no provider"):
            Producer(tmp_path)
    finally:
        observers.install(None)
    (backend,) = opened
    with pytest.raises(Exception, match="closed"):
        backend.check_usable()


def test_every_way_to_send_goes_through_all_that_surrounds_it(tmp_path: Path, watching: Watching) -> None:
    surrounded: list[int] = []

    def counting(sending: Sending) -> Iterator[None]:
        surrounded.append(len(sending.messages))
        yield

    small, large = Message("orders", b"x"), Message("orders", b"x" * 10_000)
    with Producer(
        tmp_path, compression=Compression.ZLIB, middleware=[counting], write_buffer_bytes=1 << 20
    ) as producer:
        sent = [producer.send(large), producer.send_async(large).result(), producer.send_once(large, "k")]
        sent += producer.send_batch([large, small])
        producer.send_batch([large, small], compression=Compression.ZLIB)
        producer.send_buffered(large)
    assert surrounded == [1, 1, 1, 2, 2, 1]
    assert [len(each.messages) for each in watching.seen] == [1, 1, 1, 2, 2, 1]
    assert [each.is_batch for each in watching.seen] == [False, False, False, True, True, False]
    assert [each.is_buffered for each in watching.seen] == [False] * 5 + [True]
    backend = open_backend(tmp_path)
    stored = [backend.queues.message_at(each.queue, each.queue_offset) for each in sent[:4]]
    assert all(len(message.stored_body) < 1_000 for message in stored)
    assert all(message.body == large.body for message in stored)
    backend.close()
