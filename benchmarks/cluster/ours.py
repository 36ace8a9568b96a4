"""Ours: what our client does on a cluster. Each function runs in a child."""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import cycle, islice

from benchmarks.child import Begin
from benchmarks.measure import Span
from benchmarks.traffic import KEYS, TAG, ignore, watch
from rmqclient import App, Message, Producer
from rmqclient.backend.futures import SendFuture
from rmqclient.consuming.push_consumer import PushConsumer

SENT = "sent"
STORED = "stored"
"""Topic that consumers read; it has the same messages in each turn."""
QUEUES = 4
_WARM_UP = 5


def prepare(begin: Begin, url: str, messages: int, body_bytes: int, batch: int) -> None:
    """Make the topics, and store what consumers will take."""
    begin()
    with Producer(url) as producer:
        for topic in (SENT, STORED):
            producer.create_topic(topic, QUEUES)
        body = bytes(body_bytes)
        for _ in range(messages // batch):
            producer.send_batch([Message(STORED, body, tags=TAG, keys=KEYS[:1]) for _ in range(batch)])


def send(begin: Begin, url: str, messages: int, body_bytes: int) -> Span:
    """Send one by one."""
    body = bytes(body_bytes)
    with Producer(url) as producer:
        for key in islice(cycle(KEYS), messages // _WARM_UP):
            producer.send(Message(SENT, body, tags=TAG, keys=(key,)))
        begin()
        begun_ns = time.monotonic_ns()
        for key in islice(cycle(KEYS), messages):
            producer.send(Message(SENT, body, tags=TAG, keys=(key,)))
        return _span(messages, begun_ns)


def send_by_threads(begin: Begin, url: str, messages: int, body_bytes: int, senders: int) -> Span:
    """Send one by one in each of several threads, which share a producer."""
    body = bytes(body_bytes)
    each = messages // senders
    with Producer(url) as producer:

        def send_some() -> None:
            for key in islice(cycle(KEYS), each):
                producer.send(Message(SENT, body, tags=TAG, keys=(key,)))

        producer.send(Message(SENT, body))
        begin()
        begun_ns = time.monotonic_ns()
        threads = [threading.Thread(target=send_some) for _ in range(senders)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return _span(each * senders, begun_ns)


def send_without_waiting(begin: Begin, url: str, messages: int, body_bytes: int, under_way: int) -> Span:
    """Send in one thread, with so many messages under way."""
    body = bytes(body_bytes)
    with Producer(url) as producer:
        producer.send(Message(SENT, body))
        futures: deque[SendFuture] = deque()
        begin()
        begun_ns = time.monotonic_ns()
        for key in islice(cycle(KEYS), messages):
            if len(futures) == under_way:
                futures.popleft().result()
            futures.append(producer.send_async(Message(SENT, body, tags=TAG, keys=(key,))))
        for future in futures:
            future.result()
        return _span(messages, begun_ns)


def send_batches(begin: Begin, url: str, messages: int, body_bytes: int, size: int) -> Span:
    """Send batches one after the other; the messages of each are made just before."""
    body = bytes(body_bytes)
    keys = cycle(KEYS)

    def send_some(count: int) -> None:
        for _ in range(count // size):
            producer.send_batch([Message(SENT, body, tags=TAG, keys=(key,)) for key in islice(keys, size)])

    with Producer(url) as producer:
        send_some(messages // _WARM_UP)
        begin()
        begun_ns = time.monotonic_ns()
        send_some(messages)
        return _span(messages // size * size, begun_ns)


def consume(begin: Begin, url: str, group: str, messages: int, threads: int) -> Span:
    """Handle every message of the stored topic with a handler that does nothing."""
    app = App(url)
    app.handler(STORED, group=group, threads=threads)(ignore)
    consumer = PushConsumer(url, app.handlers)
    begin()
    consumer.start()
    try:
        return watch(consumer, messages)
    finally:
        consumer.stop_taking()
        consumer.drain(30)
        consumer.close()


def _span(messages: int, begun_ns: int) -> Span:
    return Span(messages=messages, record_bytes=0, begun_ns=begun_ns, ended_ns=time.monotonic_ns())
