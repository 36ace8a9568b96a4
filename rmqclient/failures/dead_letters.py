"""Dead letters: the messages that groups have given up, and sending them again once the handler is mended.

The messages stay in ``%DLQ%group`` until retention removes them. ``config/deadLetters.jsonl``, in the directory of the
store, or in that of this host for a cluster, records each replayed or purged one in a line of its own, which is written
with one ``write`` after the replay was stored, and flushed when the command ends::

    {"topic": "%DLQ%billing", "queue_offset": 7, "message_id": "7F00...", "done": "replayed", "at": 1792000000000}

Before a replay another line says ``"done": "begun"``, and ``to`` has the topic, the queue id and the first queue offset
that the replayed message can get, and in a cluster the broker. After a kill between the two lines the next replay
searches from there, and sends the message only if it finds none. If a power cut takes the lines and leaves the message,
it is replayed once more. The message id in a line protects another message that gets the same queue offset after a
power cut. One command at a time writes: it holds an exclusive ``flock`` on the file.

A replay goes to the topic where the message failed, or, for the group that failed alone, to its retry topic. It keeps
the message id, so that a handler that keys its effect by the id has the effect once. That matters for the other groups
of the topic, too, which get the message again from there. The replay has the keys, the tag, the sharding key and the
application's properties, an empty history, and ``ORIGIN_MESSAGE_ID`` of the first record.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from rmqclient.backend.backend import Backend
from rmqclient.backend.protocols import Sender
from rmqclient.errors import LettersRejected
from rmqclient.failures.failure import HISTORY, history
from rmqclient.failures.frames import raised_in
from rmqclient.failures.origin import origin_message_id, origin_topic
from rmqclient.failures.retry import copying, dead_letter_topic, flush, retry_topic
from rmqclient.filters.tag import parse_tags
from rmqclient.message import ReceivedMessage, SendResult
from rmqclient.names import DEAD_LETTER_PREFIX, group_and_member
from rmqclient.opening import open_backend
from rmqclient.store import RESERVED_PROPERTIES, MessageQueue, MessageStore, clock, java_hash
from rmqclient.store.errors import InvalidName, MessageRejected, StoreBusy, TopicNotWritable, UnknownTopic
from rmqclient.store.files.mapped_file import make_directory
from rmqclient.store.files.sharing import OWN_FILE, share_file
from rmqclient.store.observe.summary import Group

Done = Literal["replayed", "purged"]

Name: TypeAlias = tuple[str, int, str]
"""Dead letter topic, queue offset there, message id; that of one that cannot be read is empty."""

Begun: TypeAlias = tuple[MessageQueue, int]
"""A queue, and the first offset there that a begun replay can have."""

Letters: TypeAlias = MessageStore | Backend
"""What keeps the dead letters."""

_READ_AT_ONCE = 32
_EVERY_TAG = parse_tags("*")
_JOURNAL = Path("config", "deadLetters.jsonl")
_KEPT = frozenset(("KEYS", "TAGS", "UNIQ_KEY", "__SHARDINGKEY", "ORIGIN_MESSAGE_ID"))
_LEFT = frozenset((HISTORY, "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID")) | (RESERVED_PROPERTIES - _KEPT)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a group gave up."""

    group: str
    message: ReceivedMessage
    done: Done | None
    """Whether it was replayed or purged; None for one that waits."""

    def __repr__(self) -> str:
        last = self.failures[-1] if self.failures else {}
        error = f"{last.get('error')}: {last.get('text')}"
        return f"DeadLetter({self.group!r}, {self.topic!r}, {self.message.message_id}, {error!r}, done={self.done!r})"

    @property
    def topic(self) -> str:
        """The topic where it failed first."""
        return origin_topic(self.message)

    @property
    def attempts(self) -> int:
        """Delivery attempts that failed."""
        return self.message.reconsume_times

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Its history, oldest failure first (:mod:`rmqclient.failures.failure`). Empty if a broker gave it up."""
        return history(self.message.properties)

    @property
    def own_properties(self) -> dict[str, str]:
        """The properties that the application gave it, without its history."""
        left = _LEFT | _KEPT
        return {name: value for name, value in self.message.properties.items() if name not in left}

    @property
    def error(self) -> str:
        """The last failure in one line; empty if the history is."""
        last = self.failures[-1:]
        return f"{last[0].get('error')}: {last[0].get('text')}" if last else ""

    @property
    def issue(self) -> Issue:
        """What failed last, and where."""
        *_, last = [{}, *self.failures]
        return Issue(str(last.get("error", "")), raised_in(str(last.get("trace", ""))))


class Issue(NamedTuple):
    """What the dead letters of one cause have in common."""

    error: str
    """Class of the exception of the last failure; empty if the history is."""
    place: str
    """Where it was raised, as :func:`rmqclient.failures.frames.raised_in` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A choice of dead letters; every condition must hold."""

    topic: str | None = None
    """Where they failed first."""

    error: str | None = None
    """Part of the text of the last failure; upper and lower case are the same."""

    since_ms: int | None = None
    """Failed at this time or later, ms since the epoch."""

    until_ms: int | None = None
    """Failed at this time or earlier."""

    issue: Issue | None = None
    key: str | None = None
    message_id: str | None = None
    among: frozenset[Name] | None = None
    """Only these."""

    done: bool = False
    """Replayed and purged ones, too."""

    def has(self, letter: DeadLetter) -> bool:
        """Tell whether every condition holds for a dead letter."""
        return (
            (self.done or letter.done is None)
            and self.topic in (None, letter.topic)
            and (self.error is None or self.error.lower() in letter.error.lower())
            and (self.since_ms is None or letter.message.store_timestamp >= self.since_ms)
            and (self.until_ms is None or letter.message.store_timestamp <= self.until_ms)
            and (self.issue is None or self.issue == letter.issue)
            and (self.key is None or self.key in letter.message.keys)
            and self.message_id in (None, letter.message.message_id)
            and (self.among is None or _name(letter.message) in self.among)
        )


@dataclass(frozen=True, slots=True)
class GroupLetters:
    """How many dead letters a group has."""

    group: str
    waiting: int
    replayed: int
    purged: int


def groups(letters: Letters) -> list[GroupLetters]:
    """Return the groups that have dead letters, sorted.

    Reads the journal and where the queues begin and end, and no letter. So a damaged one counts as waiting, and one
    that got the place of a settled one after a power cut counts as settled.
    """
    backend = open_backend(letters)
    settled: defaultdict[str, defaultdict[int, list[Done]]] = defaultdict(lambda: defaultdict(list))
    for (topic, offset, _), done in settled_of(backend).items():
        settled[topic][offset].append(done)
    found = []
    for topic in backend.topics.names():
        if topic.startswith(DEAD_LETTER_PREFIX):
            spans = [range(*backend.queues.span(queue)) for queue in backend.topics.queues(topic)]
            ended: list[Done] = []
            for offset, done_there in settled[topic].items():
                there = sum(offset in span for span in spans)
                ended += done_there[-there:] if there else []
            waiting = sum(map(len, spans)) - len(ended)
            group = topic.removeprefix(DEAD_LETTER_PREFIX)
            found.append(GroupLetters(group, waiting, ended.count("replayed"), ended.count("purged")))
    return found


def select(letters: Letters, group: str, selection: Selection, limit: int | None = None) -> Iterator[DeadLetter]:
    """Yield the chosen dead letters of a group, the oldest first. Damaged ones are passed over.

    Nothing is read beyond the last letter of ``limit``.
    """
    backend = open_backend(letters)
    settled = settled_of(backend)
    found = 0
    for message in _messages(backend, dead_letter_topic(group), selection.among):
        letter = DeadLetter(group, message, settled.get(_name(message)))
        if selection.has(letter):
            yield letter
            found += 1
            if found == limit:
                return


def newest(letters: Letters, group: str, *, done: bool = False) -> Iterator[DeadLetter]:
    """Yield the dead letters of a group, the newest first; with ``done``, replayed and purged ones, too.

    Reads no further than it is asked to. Damaged letters are passed over.
    """
    backend = open_backend(letters)
    settled = settled_of(backend)
    by_queue = [_newest_of(backend, queue) for queue in _queues(backend, dead_letter_topic(group))]
    for message in heapq.merge(*by_queue, key=lambda each: each.store_timestamp, reverse=True):
        letter = DeadLetter(group, message, settled.get(_name(message)))
        if done or letter.done is None:
            yield letter


def damaged(letters: Letters, group: str) -> list[tuple[MessageQueue, int]]:
    """Return the places of the dead letters that wait and cannot be read, because their records are damaged.

    Reads all dead letters of the group.
    """
    backend = open_backend(letters)
    settled = {(topic, offset) for topic, offset, _ in settled_of(backend)}
    found = []
    for queue in _queues(backend, dead_letter_topic(group)):
        there = range(*backend.queues.span(queue))
        read = {message.queue_offset for message in _messages_of(backend, queue, there)}
        begin = backend.queues.span(queue).min_offset  # retention may have removed some meanwhile
        missing = (offset for offset in there if offset >= begin and offset not in read)
        found += [(queue, offset) for offset in missing if (queue.topic, offset) not in settled]
    return found


def put_damaged_aside(letters: Letters, group: str, *, author: str | None = None) -> int:
    """Count the dead letters that cannot be read as purged; return how many. Raises StoreBusy."""
    backend = open_backend(letters)
    with _journal(backend) as journal:
        places = damaged(backend, group)
        for queue, offset in places:
            _write(journal, (queue.topic, offset, ""), "purged")
        _mark(backend, "purge", group, len(places), "put aside", author)
    return len(places)


def replay(
    letters: Letters,
    group: str,
    selection: Selection,
    *,
    limit: int | None = None,
    rate: float | None = None,
    only_group: bool = False,
    author: str | None = None,
) -> Generator[tuple[DeadLetter, SendResult], None, None]:
    """Send dead letters to the topics where they failed, at most ``rate`` a second; yield each with its new place.

    With ``only_group`` they go to the retry topic of the group, so that no other group gets them again. ``author`` is
    who asked for it, for the mark of a store; None for the user of this process.

    One that cannot be stored again, such as one that is too long by now, waits as before, and the others are sent. At
    the end such letters are named by LettersRejected. Raises StoreBusy while another command replays or purges, and
    what :meth:`rmqclient.sending.producer.Producer.send` raises.
    """
    backend = open_backend(letters)
    sender = copying(backend)
    rejected: list[str] = []
    reason, count = "", 0
    with _journal(backend) as journal:
        for letter in _landed(backend, group):
            _settle(journal, letter, "replayed")
        begun = time.monotonic()
        try:
            for number, letter in enumerate(select(backend, group, selection, limit)):
                if rate is not None:
                    time.sleep(max(0.0, begun + number / rate - time.monotonic()))
                try:
                    sent = _replay(backend, sender, journal, letter, only_group=only_group)
                except (MessageRejected, InvalidName, UnknownTopic) as error:
                    rejected.append(letter.message.message_id)
                    reason = str(error)
                    continue
                _settle(journal, letter, "replayed")
                count += 1
                yield letter, sent
        finally:  # also if whoever asked for them wants no more
            _mark(backend, "replay", group, count, "sent again", author)
    if rejected:
        raise LettersRejected(tuple(rejected), reason)


def _mark(backend: Backend, kind: str, group: str, count: int, done: str, author: str | None) -> None:
    if count and backend.store is not None:
        what = "1 dead letter was" if count == 1 else f"{count:,} dead letters were"
        backend.store.marks.write(kind, group, f"{what} {done}", author=author)


def _replay(backend: Backend, sender: Sender, journal: int, letter: DeadLetter, *, only_group: bool) -> SendResult:
    queue, properties = again(backend, letter.message, letter.group if only_group else None)
    _settle(journal, letter, "begun", (queue, backend.queues.span(queue).max_offset))
    sent = sender.append_copy(letter.message, queue, properties, reconsume_times=0)
    flush(backend, sender, sent)
    return sent


def again(backend: Backend, message: ReceivedMessage, group: str | None) -> tuple[MessageQueue, dict[str, str]]:
    """Return the queue and the properties with which a message is delivered once more, as if it had never failed.

    With a group, only that group gets it. Raises UnknownTopic and TopicNotWritable.
    """
    properties = {name: value for name, value in message.properties.items() if name not in _LEFT}
    if group is None:
        return _queue_for(backend, message), properties
    (queue, *_) = backend.topics.create(retry_topic(group), 1)
    origin = {"RETRY_TOPIC": origin_topic(message), "ORIGIN_MESSAGE_ID": origin_message_id(message), "WAIT": "false"}
    return queue, properties | origin


def is_reached_alone(backend: Backend, group: str) -> bool:
    """Tell whether a group takes what is sent to its retry topic: one that is known, and is no broadcast group."""
    found = backend.groups.find(group)
    return found is not None and takes_retries(found)


def takes_retries(group: Group) -> bool:
    """Tell whether a group takes what is sent to its retry topic: one that consumes or consumed, not by broadcast."""
    names = [*(each.group for each in group.queues), *(each.group for each in group.consumers)]
    return bool(names) and all(group_and_member(name)[1] is None for name in names)


def purge(
    letters: Letters, group: str, selection: Selection, *, limit: int | None = None, author: str | None = None
) -> Generator[DeadLetter, None, None]:
    """Count dead letters as settled without sending them; yield each. They stay in the log. Raises StoreBusy."""
    backend = open_backend(letters)
    count = 0
    with _journal(backend) as journal:
        try:
            for letter in select(backend, group, selection, limit):
                _settle(journal, letter, "purged")
                count += 1
                yield letter
        finally:
            _mark(backend, "purge", group, count, "put aside", author)


def _messages(backend: Backend, topic: str, among: frozenset[Name] | None) -> Iterator[ReceivedMessage]:
    for queue in _queues(backend, topic):
        there = range(*backend.queues.span(queue))
        if among is None:
            yield from _messages_of(backend, queue, there)
        else:
            for offset in sorted({offset for _, offset, _ in among if offset in there}):
                yield from _messages_of(backend, queue, range(offset, offset + 1))


def _queues(backend: Backend, topic: str) -> list[MessageQueue]:
    try:
        return backend.topics.queues(topic)
    except UnknownTopic:
        return []


def _newest_of(backend: Backend, queue: MessageQueue) -> Iterator[ReceivedMessage]:
    begin, end = backend.queues.span(queue)
    while begin < end:
        offsets = range(max(begin, end - _READ_AT_ONCE), end)
        found = [each for each in _messages_of(backend, queue, offsets) if each.queue_offset in offsets]
        yield from reversed(found)
        end = offsets.start


def _messages_of(backend: Backend, queue: MessageQueue, offsets: range) -> Iterator[ReceivedMessage]:
    offset = offsets.start
    while offset < offsets.stop:
        result = backend.queues.read(queue, offset, min(_READ_AT_ONCE, offsets.stop - offset), _EVERY_TAG)
        yield from result.messages
        if result.next_offset <= offset:  # the queue ends here now
            return
        offset = result.next_offset


def _queue_for(backend: Backend, message: ReceivedMessage) -> MessageQueue:
    """Choose as a producer does: by sharding key (SelectMessageQueueByHash), or in turn if there is no key."""
    topic = origin_topic(message)
    try:
        queues = backend.topics.write_queues(topic)
    except TopicNotWritable:
        raise
    except UnknownTopic:  # created again: a group consumes it, or will
        queues = backend.topics.create(topic, backend.limits.default_queue_count)
    key = message.sharding_key
    if key is None and backend.topics.cleanup_policy(topic) == "compact":
        key = next(iter(message.keys), None)
    if key is None:
        return queues[message.queue_offset % len(queues)]
    hashed = java_hash(key)
    return queues[abs(hashed) % len(queues)]  # the size of Java's remainder


def _name(message: ReceivedMessage) -> Name:
    return message.topic, message.queue_offset, message.message_id


def _landed(backend: Backend, group: str) -> Iterator[DeadLetter]:
    """Yield the dead letters whose replay was stored, but ended before its line was written."""
    if begun := {name: place for name, place in _last_entries(backend).items() if not isinstance(place, str)}:
        backend.messages.settle()
        for letter in select(backend, group, Selection(among=frozenset(begun), done=True)):
            queue, start = begun[_name(letter.message)]
            if any(
                message.message_id == letter.message.message_id
                for message in _messages_of(backend, queue, range(start, backend.queues.span(queue).max_offset))
            ):
                yield letter


def settled_of(backend: Backend) -> dict[Name, Done]:
    """Return which dead letters were replayed or purged. One whose last replay may have failed waits."""
    return {name: done for name, done in _last_entries(backend).items() if isinstance(done, str)}


def _last_entries(backend: Backend) -> dict[Name, Done | Begun]:
    """Return the last line about each dead letter: what was done, or the place of a begun replay."""
    try:
        lines = (backend.directory / _JOURNAL).read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    return dict(_entries(lines))


def _entries(lines: Iterable[bytes]) -> Iterator[tuple[Name, Done | Begun]]:
    for line in lines:
        try:
            entry = json.loads(line)
            name = entry["topic"], entry["queue_offset"], entry["message_id"]
            if entry["done"] == "begun":
                topic, queue_id, start, *broker_name = entry["to"]
                yield name, (MessageQueue(topic, queue_id, *broker_name), start)
            else:
                yield name, entry["done"]
        except (ValueError, KeyError, TypeError):  # torn by a power cut, or not ours: its message is replayed once more
            continue


@contextmanager
def _journal(backend: Backend) -> Iterator[int]:
    path = backend.directory / _JOURNAL
    make_directory(path.parent)
    is_new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, OWN_FILE)
    try:
        if is_new:
            share_file(descriptor, path.parent)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreBusy(
                f"another command replays or purges dead letters of {backend.directory}: wait for it"
            ) from None
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":  # a power cut tore the last line
            os.write(descriptor, b"\n")
        try:
            yield descriptor
        finally:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _settle(journal: int, letter: DeadLetter, done: Done | Literal["begun"], begun: Begun | None = None) -> None:
    _write(journal, _name(letter.message), done, begun)


def _write(journal: int, name: Name, done: Done | Literal["begun"], begun: Begun | None = None) -> None:
    topic, queue_offset, message_id = name
    entry: dict[str, Any] = {
        "topic": topic,
        "queue_offset": queue_offset,
        "message_id": message_id,
        "done": done,
        "at": clock.wall_ms(),
    }
    if begun is not None:
        queue, start = begun
        entry["to"] = [queue.topic, queue.queue_id, start, *filter(None, [queue.broker_name])]
    os.write(journal, json.dumps(entry).encode() + b"\n")
