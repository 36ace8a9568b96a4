"""Which thread receives a reply: the one that waits for it while no other is awaited, else that of the requester."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.errors import StoreClosed
from rmqclient.store import MessageStore
from tests.client.conftest import consuming, wait_for
from tests.support.threads import no_thread_left

LONG_S = 20.0
"""Nobody waits so long, unless a reply is lost."""
SHORT_S = 0.05
THREAD = "rmq-replies"


def echoing(store: MessageStore) -> App:
    app = App(store.root)

    @app.handler("echo", group="echo", replies=True)
    def echo(message: ReceivedMessage) -> bytes:
        return message.body

    return app


def names_of_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


@contextmanager
def waiting_alone(producer: Producer) -> Iterator[Future[ReceivedMessage]]:
    """Let another thread wait for a reply to a request in the topic ``held``, and listen."""
    requester = producer._requester
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(producer.request, Message("held", b"?"), LONG_S)
        wait_for(lambda: requester._listener not in (None, requester._thread), "the listener")
        yield future


def test_who_waits_for_the_only_reply_needs_no_other_thread(store: MessageStore, producer: Producer) -> None:
    with consuming(store, echoing(store)):
        for number in range(3):
            assert producer.request(Message("echo", b"%d" % number), LONG_S).body == b"%d" % number
        assert THREAD not in names_of_threads()


def test_another_request_is_answered_while_a_thread_waits_for_its_own_reply(
    store: MessageStore, producer: Producer
) -> None:
    with consuming(store, echoing(store)), waiting_alone(producer) as held:
        assert producer.request_async(Message("echo", b"!"), LONG_S).result(LONG_S).body == b"!"
        (queue,) = [queue for queue in store.topics.queues("held") if store.topics.max_offset(queue)]
        producer.send_reply(store.messages.at(queue, 0), b"at last")
        assert held.result(LONG_S).body == b"at last"


def test_replies_of_two_who_wait_come_to_each(store: MessageStore, producer: Producer) -> None:
    def ask(name: int) -> list[bytes]:
        return [producer.request(Message("echo", b"%d of %d" % (n, name)), LONG_S).body for n in range(300)]

    with consuming(store, echoing(store)), ThreadPoolExecutor(3) as pool:
        assert list(pool.map(ask, range(3))) == [[b"%d of %d" % (n, name) for n in range(300)] for name in range(3)]


def test_an_interrupted_waiter_leaves_the_listening_to_the_requester(
    store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with consuming(store, echoing(store)):
        producer.request(Message("echo", b""), LONG_S)
        bell = producer._requester._replies.bell
        wait = bell.wait

        def interrupted(heard: int, timeout_s: float) -> None:
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
            wait(heard, timeout_s)

        monkeypatch.setattr(bell, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.request(Message("held", b""), 20 * SHORT_S)  # its thread waits before that, on a busy machine, too
        wait_for(lambda: not producer._requester._unanswered.requests, "somebody who ends it when its time is over")
        assert producer.request_async(Message("echo", b"!"), LONG_S).result(LONG_S).body == b"!"


def test_closing_ends_the_request_whose_thread_listens(store: MessageStore) -> None:
    with no_thread_left(THREAD), Producer(store) as producer, waiting_alone(producer) as held:
        producer.close()
        with pytest.raises(StoreClosed, match="its producer was closed before the reply came"):
            held.result(LONG_S)
