"""The page of limits has the numbers of the code, and names the error that what is over a limit gets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqclient.errors
from rmqclient import App, Batch, Message, Producer, PullConsumer, StoreConfig, handler, jmespath, sql
from rmqclient.consuming import pull_consumer
from rmqclient.duration import LONGEST_DELAY
from rmqclient.failures.retry import MAX_LEVEL
from rmqclient.filters import body, sql92_grammar, tag
from rmqclient.names import MAX_NAME_CHARACTERS, MAX_QUEUES
from rmqclient.steps import record, steps
from rmqclient.store import layout
from rmqclient.store.log.inner_batch import MAX_INNER_MESSAGES
from rmqclient.store.waiting import once
from tests.docs.page import REPOSITORY

PAGE = (REPOSITORY / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
CONFIG = StoreConfig()
FILE_BYTES = CONFIG.commit_log_file_bytes

NUMBERS = {
    "bytes of a body": CONFIG.max_body_bytes,
    "bytes that a compressed body may open to": CONFIG.max_opened_body_bytes,
    "bytes of all properties, with tags and keys": layout.MAX_SENT_PROPERTIES_BYTES,
    "bytes of the properties, with those that retries add": layout.MAX_PROPERTIES_BYTES,
    "bytes of a key of `send_once`": once.LONGEST_KEY_BYTES,
    "bits of `flag`, with a sign": 8
    * next(field.size for field in layout.RECORD_HEADER.fields if field.name == "flag"),
    "bytes of the records of a batch": FILE_BYTES - layout.BLANK_RECORD.size,
    "messages of a batch": CONFIG.consume_queue_file_entries,
    "messages of a compressed batch": MAX_INNER_MESSAGES,
    "days of a delay": LONGEST_DELAY.days,
    "messages that wait in the timer": layout.TIMER_BITS,
    "highest delay level": MAX_LEVEL,
    "characters of a topic or a group": MAX_NAME_CHARACTERS,
    "queues of a topic": MAX_QUEUES,
    "queues of a topic made by its first message": CONFIG.default_queue_count,
    "queues of all topics": layout.QUEUE_SLOTS,
    "queues of all groups: a queue counts once for each group that reads it": layout.GROUP_QUEUE_SLOTS,
    "threads of a handler": handler.MAX_THREADS,
    "coroutines of an `async` handler, for each thread": handler.MAX_COROUTINES,
    "coroutines of an `async` handler, by default": handler.DEFAULT_COROUTINES,
    "messages of a call with `Batch`": handler.MAX_BATCH,
    "seconds of `linger`": int(handler.MAX_LINGER_S),
    "messages of one pull of a `PullConsumer`": pull_consumer.MAX_LIMIT,
    "members of all groups: each topic of a handler in each process": layout.MEMBER_SLOTS,
    "handler threads of all processes": layout.RUNNING_SLOTS,
    "workers of all supervisors": layout.WORKER_SLOTS,
    "messages of a queue that a group may be ahead of its oldest unfinished one": layout.ACK_WINDOW,
    "[durable steps](../handling/steps.md), sleeps and waits of a message": steps.MOST_STEPS,
    "bytes of the name of a step": record.MOST_NAME_BYTES,
    "characters of a tag expression": tag.MAX_EXPRESSION_CHARACTERS,
    "characters of an SQL92 filter": sql92_grammar.MAX_CHARACTERS,
    "characters of a JMESPath filter": body.MAX_CHARACTERS,
    "bytes of a body that a JMESPath filter reads": body.MAX_BODY_BYTES,
    "bytes of a commit log file": FILE_BYTES,
    "messages of a queue file": CONFIG.consume_queue_file_entries,
    "keys of an index file": CONFIG.index_entries - 1,
}


def rows() -> Iterator[tuple[str, str, str]]:
    for line in re.findall(r"^\| (.+) \|$", PAGE, re.MULTILINE):
        cells = line.split(" | ")
        if cells[1] != "number" and not cells[0].startswith("---"):
            yield cells[0], cells[1], cells[2]


def test_the_page_has_the_numbers_of_the_code() -> None:
    assert {limit: number for limit, number, _ in rows()} == {limit: f"{number:,}" for limit, number in NUMBERS.items()}


def test_what_is_over_a_limit_gets_the_error_of_the_page(tmp_path: Path) -> None:
    expected = {limit: found[1] for limit, _, error in rows() if (found := re.match(r"`([A-Z]\w+)`", error))}
    root, app = tmp_path / "store", App(tmp_path / "store")
    with Producer(root, config=StoreConfig.small()) as producer, PullConsumer(root, group="g") as consumer:
        producer.send("t", b"")

        async def coroutine(_: bytes) -> None: ...

        def properties(size: int) -> Message:
            return Message("t", b"", properties={"a": "b" * size})

        tried: dict[str, Callable[[], object]] = {
            "bytes of a body": lambda: producer.send("t", bytes(StoreConfig.small().max_body_bytes + 1)),
            "bytes of all properties, with tags and keys": lambda: producer.send(properties(31_001)),
            "bytes of a key of `send_once`": lambda: producer.send_once("t", b"", key="k" * 256),
            "bits of `flag`, with a sign": lambda: producer.send(Message("t", b"", flag=1 << 31)),
            "bytes of the records of a batch": lambda: producer.send_batch([Message("t", bytes(1 << 20))] * 4),
            "messages of a batch": lambda: producer.send_batch([Message("t", b"")] * 1_001),
            "days of a delay": lambda: producer.send("t", b"", delay=3_653 * 86_400 + 1),
            "highest delay level": lambda: producer.send(Message("t", b""), delay_level=19),
            "characters of a topic or a group": lambda: producer.send("t" * 128, b""),
            "queues of a topic": lambda: producer.create_topic("q", queue_count=1_025),
            "threads of a handler": lambda: app.handler("t", group="g", threads=1_001)(print),
            "coroutines of an `async` handler, for each thread": lambda: app.handler("t", group="g", coroutines=1_001)(
                coroutine
            ),
            "messages of a call with `Batch`": lambda: Batch(1_025),
            "seconds of `linger`": lambda: Batch(2, linger=60.1),
            "messages of one pull of a `PullConsumer`": lambda: consumer.pull(consumer.queues("t")[0], 0, limit=1_025),
            "bytes of the name of a step": lambda: record.check_name("s" * 101),
            "characters of a tag expression": lambda: app.handler("t", group="g", tags="a" * 4_097)(print),
            "characters of an SQL92 filter": lambda: sql(f"a = {'1' * 4_097}"),
            "characters of a JMESPath filter": lambda: jmespath("a" * 1_025),
        }
        for limit, attempt in tried.items():
            with pytest.raises(Exception) as raised:
                attempt()
            assert type(raised.value).__name__ == expected[limit], limit
    unknown = set(expected.values()) - set(rmqclient.errors.__all__) - {"ValueError"}
    assert unknown == set()
