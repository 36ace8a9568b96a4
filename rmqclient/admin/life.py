"""Life: what happened to one message, as far as the log still tells.

A message is stored again for each retry and as a dead letter, with its id, so its copies are found by that id. Whether
a group has finished it shows in the group's committed offset. The records of the message trace, if clients wrote them,
tell who sent it, who handled it, and how long that took. So do the records of its durable steps in each group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from rmqclient.backend.backend import Backend
from rmqclient.duration import duration_in
from rmqclient.failures.dead_letters import Selection, select
from rmqclient.failures.failure import history
from rmqclient.filters.tag import parse_tags
from rmqclient.health.words import age
from rmqclient.message import ReceivedMessage
from rmqclient.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, STEPS_PREFIX
from rmqclient.steps.journal import PAUSED
from rmqclient.steps.record import Record
from rmqclient.steps.stored_copies import id_of
from rmqclient.store import DELAYS, RESERVED_PROPERTIES, SCHEDULE_TOPIC, TIMER_TOPIC
from rmqclient.store.log.query import END_OF_TIME
from rmqclient.store.observe.observation import GroupQueue
from rmqclient.store.observe.states import HUNG_AFTER_S, place
from rmqclient.store.observe.summary import Group
from rmqclient.tracing.records import TRACE_TOPIC, EndTransaction, Pub, SubAfter, SubBefore, decoded

_WAITING = (TIMER_TOPIC, SCHEDULE_TOPIC)
_MOST_COPIES = 64
_MOST_RECORDS = 10_000
_STEP_EVENTS = {"result": "step", "sleep": "sleeps", "wait": "waits", "signal": "signal", "timeout": "time is up"}


class Step(NamedTuple):
    """One thing that happened, or that is so now."""

    at_ms: int | None
    """None for what is so now."""
    event: str
    """``born``, ``delayed``, ``stored``, ``failed``, ``retry stored``, ``dead letter``, ``replayed``, ``purged`` or
    ``group``. From the message trace: ``sent``, ``begun``, ``handled``, ``not handled``, ``committed`` and
    ``rolled back``. Of durable steps: ``step``, ``sleeps``, ``waits``, ``signal``, ``time is up`` and ``woken``."""
    detail: str
    by: str = ""
    """The group that did it, for a failure with the client id of the member."""
    record: ReceivedMessage | None = None
    """The record that the step is about."""
    trace: str = ""
    """Of a failure: its last frames."""
    standing: str = ""
    """Of a group: as :class:`Standing` has it."""
    group: str = ""
    """The group alone; empty for what no group did."""
    worker: str = ""
    """Client id of the member that failed or runs it, as far as it is known."""
    took_ms: int | None = None
    """How long what ended at ``at_ms``, or is so now, took; None if nobody tells."""
    until_ms: int | None = None
    """Of a delay, a sleep or a wait: its end."""

    @property
    def place(self) -> str:
        """Topic, queue id and queue offset of the record; without one, the group."""
        of = self.record
        return self.by if of is None else place(of.topic, of.queue_id, of.queue_offset)


def life_of(backend: Backend, message: ReceivedMessage, groups: Iterable[Group] | None = None) -> list[Step]:
    """Return what happened to a message, the oldest first, and then where each group of its topic stands.

    ``groups`` are all groups, read a moment ago; without them they are read now.

    Raises StoreFull and StoreBusy: the copies are found by the index, which is brought up to date first.
    """
    groups = backend.groups.all() if groups is None else groups
    copies = _copies(backend, message)
    first = copies[0]
    steps = [Step(first.born_timestamp, "born", f"keys {' '.join(first.keys) or '-'}, tags {first.tags or '-'}")]
    for copy in copies:
        group, until_ms = _group_of(copy) if _real_topic(copy).startswith("%") else "", _until(copy)
        said = f"attempts so far {copy.reconsume_times}"
        if until_ms is not None:
            said = f"for {_real_topic(copy)}, until {_written(until_ms)}"
        steps.append(Step(copy.store_timestamp, _event(copy), said, record=copy, group=group, until_ms=until_ms))
    steps += _failed(copies)
    steps += _stepped(backend, id_of(message))
    steps += _traced(backend, message.message_id)
    steps.sort(key=lambda step: step.at_ms or 0)
    return [*steps, *_settled(backend, copies), *_groups(groups, copies)]


def own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that are the application's, without those that belong to one stored message."""
    return {name: value for name, value in properties.items() if name not in RESERVED_PROPERTIES}


def _copies(backend: Backend, message: ReceivedMessage) -> list[ReceivedMessage]:
    """Return the message and what has its id in its first topic and those of its groups, in the order of the log."""
    known = backend.topics.names()
    first = message.properties.get("DLQ_ORIGIN_TOPIC") or message.properties.get("RETRY_TOPIC") or _real_topic(message)
    found = [message]
    among = [
        topic for topic in known if topic in (first, *_WAITING) or topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    ]
    for topic in backend.messages.topics_with(message.message_id, among):
        found += backend.messages.by_key(topic, message.message_id, 0, END_OF_TIME, _MOST_COPIES)
    origin = message.properties.get("ORIGIN_MESSAGE_ID")
    if origin and all(
        _real_topic(each) != first for each in found
    ):  # without an id of its sender, each copy has another one
        found += filter(None, [backend.messages.by_id(origin)])
    by_place = {(each.topic, each.queue_id, each.queue_offset): each for each in found}
    return sorted(by_place.values(), key=lambda each: each.commit_log_offset)


def _failed(copies: list[ReceivedMessage]) -> Iterator[Step]:
    """Yield each failure once: a copy has those of the copies before it, too, but maybe without their tracebacks."""
    seen = set()
    for copy in copies:
        for failure in history(copy.properties):
            group, at_ms, attempt = _group_of(copy), failure.get("at"), failure.get("attempt")
            if (group, at_ms, attempt) not in seen:
                seen.add((group, at_ms, attempt))
                by = ", ".join(filter(None, (f"group {group}", str(failure.get("worker") or ""))))
                said = f"attempt {attempt}: {failure.get('error')}: {failure.get('text')}"
                at_ms = at_ms if isinstance(at_ms, int) else copy.store_timestamp
                trace, worker = str(failure.get("trace", "")), str(failure.get("worker") or "")
                yield Step(at_ms, "failed", said, by, trace=trace, group=group, worker=worker)


def _stepped(backend: Backend, message_id: str) -> Iterator[Step]:
    """Yield what is stored of the message's durable steps. Of records that were stored again, the first counts."""
    journals = [topic for topic in backend.topics.names() if topic.startswith(STEPS_PREFIX)]
    for topic in backend.messages.topics_with(message_id, journals):
        seen: dict[int, Step] = {}
        for message in backend.messages.by_key(topic, message_id, 0, END_OF_TIME, _MOST_RECORDS):
            record = Record.of(message)
            if record is not None:
                group = topic.removeprefix(STEPS_PREFIX)
                event, until_ms = _STEP_EVENTS[record.kind], _end_of(record)
                told = Step(record.stored_ms, event, _said(record), f"group {group}", group=group, until_ms=until_ms)
                seen[record.place] = told
        yield from (seen[at] for at in sorted(seen))  # as in the log: several may be of one millisecond


def _said(record: Record) -> str:
    until_ms = _end_of(record)
    if until_ms is not None:
        return f"{record.name} until {_written(until_ms)}"
    return record.name if record.kind == "timeout" else f"{record.name}, {len(record.body):,} bytes of {record.form}"


def _end_of(record: Record) -> int | None:
    return int(record.body) if record.kind in ("sleep", "wait") else None


def _written(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def _traced(backend: Backend, message_id: str) -> Iterator[Step]:
    """Yield what the message trace says. A call that has ended stands there once, with its end."""
    if TRACE_TOPIC not in backend.topics.names():
        return
    found = [
        (record, message)
        for message in backend.messages.by_key(TRACE_TOPIC, message_id, 0, END_OF_TIME, _MOST_COPIES)
        for record in decoded(message.body.decode(errors="replace"))
        if message_id in record.message_id.split(",")  # Java's batches have several in one record
    ]
    begun = {record.request_id: record for record, _ in found if isinstance(record, SubBefore)}
    found.sort(key=lambda each: not isinstance(each[0], Pub))  # of one millisecond, the send comes first
    for record, message in found:
        if isinstance(record, SubAfter):
            before = begun.pop(record.request_id, None)
            yield _ended(record, before, message)
        elif not isinstance(record, SubBefore):
            yield _told(record)
    for before in begun.values():
        said = f"attempt {before.retries + 1}, end not told"
        yield Step(before.at_ms, "begun", said, f"group {before.group}", group=before.group)


def _ended(after: SubAfter, before: SubBefore | None, message: ReceivedMessage) -> Step:
    attempt = f", attempt {before.retries + 1}" if before is not None else ""
    at_ms = after.at_ms or (before.at_ms + after.cost_ms if before is not None else message.born_timestamp)
    group = after.group or (before.group if before is not None else "")
    event = "handled" if after.success else "not handled"
    said = f"in {after.cost_ms} ms{attempt}"
    return Step(at_ms, event, said, f"group {group}", group=group, took_ms=after.cost_ms)


def _told(record: Pub | EndTransaction) -> Step:
    if isinstance(record, EndTransaction):
        said = "after a check" if record.from_check else "by its producer"
        return Step(record.at_ms, "committed" if record.commit else "rolled back", said, f"group {record.group}")
    said = f"in {record.cost_ms} ms to {record.store_host}" + ("" if record.success else ", not confirmed")
    return Step(record.at_ms, "sent", said, f"group {record.group}")


def _settled(backend: Backend, copies: list[ReceivedMessage]) -> Iterator[Step]:
    for copy in copies:
        if copy.topic.startswith(DEAD_LETTER_PREFIX):
            name = copy.topic, copy.queue_offset, copy.message_id
            for letter in select(backend, _group_of(copy), Selection(among=frozenset((name,)), done=True)):
                said = f"dead letter of {letter.group}"
                yield Step(None, letter.done or "waits", said, record=copy, group=letter.group)


def _groups(groups: Iterable[Group], copies: list[ReceivedMessage]) -> Iterator[Step]:
    for group in groups:
        for number, copy in enumerate(copies):
            if not copy.topic.startswith(DEAD_LETTER_PREFIX):
                later = [_real_topic(each) for each in copies[number + 1 :] if _group_of(each) == group.group]
                for name, standing in _standings(group, copy):
                    now = _sent_back(later) if later and standing.what == "finished" else standing
                    yield Step(
                        None,
                        f"group {name}",
                        now.said,
                        record=copy,
                        standing=now.what,
                        group=group.group,
                        worker=now.worker,
                        took_ms=now.for_ms,
                    )


class Standing(NamedTuple):
    """How a group stands with one record of a message."""

    what: str
    """``runs``, ``hangs``, ``waits``, ``skipped``, ``sent back``, ``given up`` or ``finished``."""
    said: str
    worker: str = ""
    """Of a call that runs."""
    for_ms: int | None = None
    """For how long it has run."""


def _sent_back(later: list[str]) -> Standing:
    """Return how a group stands with a record that it stored again in these topics."""
    if later[-1].startswith(DEAD_LETTER_PREFIX):
        return Standing("given up", "given up: it is a dead letter")
    return Standing("sent back", "sent back for a later attempt")


def _standings(group: Group, message: ReceivedMessage) -> Iterator[tuple[str, Standing]]:
    """Yield how a group stands with a record, if it has its queue; of a broadcast group, each member by its name."""
    for each in group.queues:
        if (each.queue.topic, each.queue.queue_id) == (message.topic, message.queue_id):
            yield each.group, _standing(group, each, message)


def _standing(group: Group, each: GroupQueue, message: ReceivedMessage) -> Standing:
    offset, said = message.queue_offset, ""
    for call in group.calls:
        if (call.group, call.queue) == (each.group, each.queue) and call.queue_offset <= offset <= call.last_offset:
            what = "hangs" if call.age_s > HUNG_AFTER_S else "runs"
            said = f"{what} for {age(call.age_s)} in process {call.pid}"
            return Standing(what, said, call.member.client_id, round(call.age_s * 1000))
    if offset >= each.committed_offset:
        before = offset - each.committed_offset
        said = f"not passed: {before:,} messages stand before it" if before else "not passed: it is the next one"
        return Standing("waits", said + (", or it is finished ahead of them" if each.acknowledged_ahead else ""))
    wants = sorted({member.subscription for member in group.consumers if member.topic == each.queue.topic})
    tags = wants[0].partition(";")[0].removeprefix("tags ").strip() if wants else "*"
    if each.skipped and not _is_wanted(tags, message):
        return Standing("skipped", f"skipped by its tags: the group wants {tags}")
    if each.skipped and (not wants or any("; sql " in text or "; jmespath " in text for text in wants)):
        return Standing("finished", f"finished, or skipped: {each.skipped:,} messages of the queue were")
    return Standing("finished", "finished")


def _is_wanted(tags: str, message: ReceivedMessage) -> bool:
    try:
        return parse_tags(tags).matches(message.tags)
    except ValueError:  # of another language, whose rules are others
        return True


def _real_topic(copy: ReceivedMessage) -> str:
    """Return the topic that a copy is in, or for which it waited."""
    return copy.properties.get("REAL_TOPIC", copy.topic) if copy.topic in _WAITING else copy.topic


def _until(copy: ReceivedMessage) -> int | None:
    """Return the end of the wait of a copy; None if it is one that does not wait."""
    if copy.topic == TIMER_TOPIC:
        due = copy.properties.get("TIMER_OUT_MS", "")
        return int(due) if due.isdecimal() else copy.store_timestamp
    level = copy.properties.get("DELAY", "")
    if copy.topic == SCHEDULE_TOPIC and level.isdecimal() and 1 <= int(level) <= len(DELAYS):
        return copy.store_timestamp + round(duration_in(DELAYS[int(level) - 1]) * 1000)
    return None


def _event(copy: ReceivedMessage) -> str:
    if copy.topic in _WAITING:
        return "delayed"
    if copy.topic.startswith(RETRY_PREFIX):
        return "woken" if PAUSED in copy.properties else "retry stored"
    return "dead letter" if copy.topic.startswith(DEAD_LETTER_PREFIX) else "stored"


def _group_of(copy: ReceivedMessage) -> str:
    return _real_topic(copy).removeprefix(RETRY_PREFIX).removeprefix(DEAD_LETTER_PREFIX)
