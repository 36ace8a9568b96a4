"""Counters of two groups while senders and consumers are killed, compared with the log and with what handlers saw."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy, StoreConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.metrics import Observation, Sampler, by_group, by_topic
from rmqclient.store import MessageStore, open_store
from rmqclient.store.inspect.verify import verify
from tests.torture.kills.fates import Journal, Seen, fates_of, wrong_failures
from tests.torture.result import Result, Rig

CLAIM = (
    "Through kills of senders and consumers, one by one and all at once, each message that a group has finished is "
    "counted once, by what became of it, as its handler wrote down and the log shows. The bytes of a topic count each "
    "record once."
)
TOPIC = "orders"
ORDERED, SIDE = "ordered", "side-by-side"
WANTED = "wanted"
CONFIG = StoreConfig(commit_log_file_bytes=8 << 20, consume_queue_file_entries=4_096)
_QUEUES = 2
_THREADS = 3
"""Of the group that handles side by side."""
_SENT = 40
"""Messages that a sender sends, unless it is killed."""
_LONGEST_S = 0.4
_PAUSES_EVERY = 8
_PAUSE_S = 0.05
"""Of a handler that has written its line, at each eighth message: kills meet it before it returns."""
_SENDING_S = 0.05
_LIMIT_S = 120.0

Truth = dict[str, list[ReceivedMessage]]
"""What the log holds, by topic."""


class Poison(Exception):
    """What the handlers raise for some messages, which are dead letters at once."""


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Kill at random in each of so many rounds, then let everything be handled and compare."""
    result, chosen, root = Result(CLAIM), random.Random(seed), scratch / "store"
    kills = {"kills of senders": 0, "kills of consumers": 0, "kills of all at once": 0}
    with Producer(root, config=CONFIG) as producer:
        producer.create_topic(TOPIC, _QUEUES)
    for _ in range(rounds):
        sender, consumers = _started(_send, root), [_started(_consume, root) for _ in range(2)]
        if chosen.random() < 0.5:
            time.sleep(chosen.random() * _SENDING_S)
            kills["kills of senders"] += _killed(sender)
        time.sleep(chosen.random() * _LONGEST_S)
        if chosen.random() < 0.3:
            kills["kills of all at once"] += 1
            _killed(sender)
        for consumer in consumers:
            kills["kills of consumers"] += _killed(consumer)
        _ended(sender)
    with Sampler(root) as sampler:
        last = _started(_consume, root)
        try:
            is_done = _wait(lambda: _is_over(sampler))
        finally:
            _killed(last)
        sample = sampler.sample()
    if not is_done:
        result.problems.append(f"after {_LIMIT_S:.0f} s not all messages were handled")
    with open_store(root, housekeeping=False) as store:
        truth = {topic: _records(store, topic) for topic in store.topics.topics()}
    result.problems += [*_wrong_bytes(sample, truth), *_wrong_counts(sample, truth, journal_of(root))]
    result.problems += [f"verify: {problem}" for problem in verify(root)]
    result.figures |= {
        **kills,
        "messages": sum(map(len, truth.values())),
        "of them struck between their fate and its acknowledgement": _struck(truth, journal_of(root)),
    }
    return result


def application(root: Path) -> App:
    """Return two groups on one topic, which want most of its messages."""
    app, journal = App(str(root), config=CONFIG), Journal(journal_of(root))

    @app.handler(TOPIC, group=ORDERED, tags=WANTED, order="queue", retry=_policy())
    def in_order(message: ReceivedMessage) -> None:
        _handle(journal, ORDERED, message)

    @app.handler(TOPIC, group=SIDE, tags=WANTED, threads=_THREADS, retry=_policy(0.05))
    def side_by_side(message: ReceivedMessage) -> None:
        _handle(journal, SIDE, message)

    return app


def _policy(*delays: float) -> RetryPolicy:
    return RetryPolicy(max_retries=1_000_000, delays=delays, dead_letter_on=(Poison,))


def journal_of(root: Path) -> Path:
    """Return where handlers write down what they saw."""
    return root.with_name("journal")


def _handle(journal: Journal, group: str, message: ReceivedMessage) -> None:
    seen: Seen = "raised" if message.body.startswith(b"poison") else "returned"
    journal.write(group, message, seen)
    if message.queue_offset % _PAUSES_EVERY == 0:
        time.sleep(_PAUSE_S)
    if seen == "raised":
        raise Poison


def _send(root: Path) -> None:
    with Producer(root, config=CONFIG) as producer:
        for number in range(_SENT):
            tags = "other" if number % 5 == 0 else WANTED
            body = b"poison" if number % 7 == 0 else b"good"
            producer.send(Message(TOPIC, body * (1 + number), tags=tags))


def _consume(root: Path) -> None:
    consumer = PushConsumer(root, application(root).handlers)
    consumer.start()
    while True:
        signal.pause()


def _records(store: MessageStore, topic: str) -> list[ReceivedMessage]:
    return [
        store.messages.at(queue, offset)
        for queue in store.topics.queues(topic)
        for offset in range(store.topics.max_offset(queue))
    ]


def _wrong_bytes(sample: Observation, truth: Truth) -> list[str]:
    counted = {topic: totals.bytes_in for topic, totals in by_topic(sample).items()}
    stored = {topic: sum(record.size for record in records) for topic, records in truth.items()}
    return [
        f"{topic}: {counted.get(topic)} bytes counted, {stored[topic]} stored"
        for topic in stored
        if counted.get(topic) != stored[topic]
    ]


def _wrong_counts(sample: Observation, truth: Truth, journal: Path) -> Iterator[str]:
    """Compare what each group counted with the records that it has finished, and with what its handlers saw."""
    totals, records = by_group(sample), truth[TOPIC]
    wanted = [record for record in records if record.tags == WANTED]
    for group in (ORDERED, SIDE):
        found, again_topic = totals[group, TOPIC], f"%RETRY%{group}"
        copies, letters = truth.get(again_topic, []), truth.get(f"%DLQ%{group}", [])
        if (found.skipped, found.lost) != (len(records) - len(wanted), 0):
            yield f"{group}: {len(records) - len(wanted)} of {len(records)} messages not wanted, counted as {found}"
        if found.delivered < len(wanted):
            yield f"{group}: {len(wanted)} messages, fewer delivered: {found}"
        at_first, again = both = fates_of(group, journal, wanted, copies, letters)
        yield from at_first.problems(f"{group} at first", wanted, found)
        if copies:
            yield from again.problems(f"{group} again", copies, totals[group, again_topic])
        counted = [totals[key] for key in ((group, TOPIC), (group, again_topic)) if key in totals]
        yield from wrong_failures(group, both, counted, len(letters), len(copies))


def _struck(truth: Truth, journal: Path) -> int:
    """Return how many messages a kill struck between their fate and its acknowledgement."""
    fates = (
        fates_of(group, journal, truth[TOPIC], truth.get(f"%RETRY%{group}", []), truth.get(f"%DLQ%{group}", []))
        for group in (ORDERED, SIDE)
    )
    return sum(each.struck() for both in fates for each in both)


def _is_over(sampler: Sampler) -> bool:
    """Tell whether all is finished, and nothing was appended during the look.

    What comes due between its look at the queues and that at what waits is in neither.
    """
    before, sample = sampler.sample(), sampler.sample()
    return is_finished(sample) and sample.disk.published_to == before.disk.published_to


def is_finished(sample: Observation) -> bool:
    """Tell whether both groups, which are there when a consumer has begun, have nothing left to do."""
    groups = by_group(sample)
    are_there = groups.keys() >= {(ORDERED, TOPIC), (SIDE, TOPIC)}
    is_done = sample.timer.waiting == 0 and all(each.lag == 0 and each.in_flight == 0 for each in groups.values())
    return are_there and is_done


def _started(target: Callable[[Path], None], root: Path) -> int:
    """Run a function in a child; return its process id."""
    child = os.fork()
    if child:
        return child
    try:
        target(root)
    except BaseException as error:  # noqa: BLE001 - the child must not go on with the parent's work
        print(f"{target.__name__}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def _killed(child: int) -> bool:
    """Kill a child and wait for its end; False when it had ended before."""
    try:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        return False
    return os.WIFSIGNALED(status)


def _ended(child: int) -> None:
    try:
        os.waitpid(child, 0)
    except ChildProcessError:
        return


def _wait(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + _LIMIT_S
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


RIG = Rig("counters", 1_000, run)
