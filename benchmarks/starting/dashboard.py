"""Dashboard: the time in which a dashboard makes each of its pages, of a store with much in it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from starlette.testclient import TestClient

from benchmarks import traffic
from benchmarks.measure import Benchmark, Samples, Size, at_most, scratch
from rmqclient import Message, Producer
from rmqclient.admin import Admin
from rmqclient.codecs import encode_body
from rmqclient.dashboard import Dashboard
from rmqclient.failures.failure import Failure, with_failures
from rmqclient.failures.retry import dead_letter_topic
from rmqclient.store import MessageStore, StoreConfig, open_store

_TOKEN = "a token for a benchmark"
_HOST = "127.0.0.1"
_MOST_MS = at_most(150)
_QUEUES = 4
_ISSUES = 40
"""Places in the code where handlers fail."""
_CONFIG = StoreConfig(consume_queue_file_entries=2_000)
_PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topic": f"/topics/{traffic.TOPIC}",
    "groups": "/groups",
    "group": "/groups/group-0",
    "search": f"/messages?q={traffic.KEYS[7]}",
    "search by content": f"/messages?topic={traffic.TOPIC}&where=queue_offset+%3D%3D+%607%60",
    "message": f"/messages/{traffic.TOPIC}/0/7",
    "dead letters": "/dead-letters",
    "dead letters of a group": "/dead-letters?group=group-0",
    "workers": "/workers",
    "schedules": "/schedules",
    "transactions": "/transactions",
    "events": "/events",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What is in the store, and how often each page is asked for."""

    topics: int
    groups: int
    messages: int
    dead_letters: int
    looks: int


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Fill a store, then ask for every page again and again, in turns."""
    samples.note(
        "Every group lags on one topic that has all messages. The time is from a request to the last byte of its "
        "answer, without a network and a browser; a look at the store once a second goes on beside it, as in use. "
        "The first answers are not counted: the dead letters of a store are read once."
    )
    case = (
        f"{parameters.topics:,} topics, {parameters.groups:,} groups, {parameters.messages:,} messages, "
        f"{parameters.dead_letters:,} dead letters"
    )
    with scratch(directory) as scratched:
        root = scratched / "store"
        _fill(root, parameters)
        board = Dashboard(root, token=_TOKEN, hosts=[_HOST])
        with TestClient(board, base_url=f"http://{_HOST}") as browser:
            browser.get("/", params={"token": _TOKEN})
            _read_all_dead_letters(browser, board)
            for path in _PAGES.values():
                browser.get(path)
            for _ in range(parameters.looks):
                for name, path in _PAGES.items():
                    begun, begun_cpu = time.perf_counter(), time.process_time()
                    answer = browser.get(path)
                    took_ms, took_cpu_ms = (
                        (time.perf_counter() - begun) * 1e3,
                        (time.process_time() - begun_cpu) * 1e3,
                    )
                    if answer.status_code != 200:
                        raise RuntimeError(f"{path} answers {answer.status_code}: {answer.text[-300:]}")
                    samples.add(name, case, "ms", took_ms, _MOST_MS)
                    samples.add(f"{name}, CPU", case, "ms", took_cpu_ms)
        board.close()


def _read_all_dead_letters(browser: TestClient, board: Dashboard) -> None:
    while board.desk.issues.read(board.desk.backend()):
        browser.get("/dead-letters")


def _fill(root: Path, parameters: Parameters) -> None:
    with open_store(root, _CONFIG) as store:
        with Producer(store) as producer, Admin(store) as admin:
            producer.create_topic(traffic.TOPIC, _QUEUES)
            for number in range(1, parameters.topics):
                producer.create_topic(f"topic-{number}", 1)
                producer.send(Message(f"topic-{number}", b"%d" % number))
            for number in range(parameters.groups):
                admin.seek(f"group-{number}", traffic.TOPIC, "earliest")
            batches = traffic.prebuilt(100)
            for number in range(-(-parameters.messages // traffic.BATCH)):
                producer.send_batch(batches[number % len(batches)], traffic.KEYS[number % len(traffic.KEYS)])
        _fail(store, parameters)


def _fail(store: MessageStore, parameters: Parameters) -> None:
    appender = store.appenders.make(lambda topic: store.topics.create(topic, 1), encode_body)
    for number in range(parameters.dead_letters):
        frame = f'  File "/srv/shop/module_{number % _ISSUES}.py", line 41, in charge\n    post()\n'
        failure = Failure(attempt=1, error="Timeout", text=f"no answer to {number}", worker="worker-1", trace=frame)
        topic = dead_letter_topic(f"group-{number % min(parameters.groups, 20)}")
        appender.append(Message(topic, b"%d" % number, properties=with_failures({}, [failure])))


BENCHMARK = Benchmark(
    name="dashboard",
    title="The pages of the dashboard",
    parameters={
        Size.FULL: Parameters(topics=300, groups=107, messages=1_000_000, dead_letters=12_000, looks=30),
        Size.QUICK: Parameters(topics=300, groups=107, messages=100_000, dead_letters=2_000, looks=10),
        Size.SMALLEST: Parameters(topics=3, groups=2, messages=1_000, dead_letters=20, looks=1),
    },
    run=run,
)
