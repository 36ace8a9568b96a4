"""Life: what happened to one message, as far as the log still tells.

A message is stored again for each retry and as a dead letter, with its id, so its copies are found by that id. Whether
a group has finished it shows in the group's committed offset. The records of the message trace, if clients wrote them,
tell who sent it, who handled it, and how long that took. So do the records of its durable steps in each group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from rmqclient.backend.backend import Backend
from rmqclient.failures.dead_letters import Selection, select
from rmqclient.failures.failure import history
from rmqclient.filters.tag import parse_tags
from rmqclient.health.words import age
from rmqclient.message import ReceivedMessage
from rmqclient.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, STEPS_PREFIX
from rmqclient.steps.journal import PAUSED, id_of
from rmqclient.steps.record import Record
from rmqclient.store import RESERVED_PROPERTIES
from rmqclient.store.log.query import END_OF_TIME
from rmqclient.store.observe.observation import GroupQueue
from rmqclient.store.observe.states import HUNG_AFTER_S
from rmqclient.store.observe.summary import Group
from rmqclient.tracing.records import TRACE_TOPIC, EndTransaction, Pub, SubAfter, SubBefore, decoded

_MOST_COPIES = 64
_MOST_RECORDS = 10_000
_STEP_EVENTS = {"result": "step", "sleep": "sleeps", "wait": "waits", "signal": "signal", "timeout": "time is up"}


class Step(NamedTuple):
    """One thing that happened, or that is so now."""

    at_ms: int | None
    """None for what is so now."""
    event: str
    """``born``, ``stored``, ``failed``, ``retry stored``, ``dead letter``, ``replayed``, ``purged`` or ``group``. From
    the message trace: ``sent``, ``begun``, ``handled``, ``not handled``, ``committed`` and ``rolled back``. Of durable
    steps: ``step``, ``sleeps``, ``waits``, ``signal``, ``time is up`` and ``woken``."""
    place: str
    """Topic, queue id and queue offset; a group for what happened in one."""
    detail: str


def life_of(backend: Backend, message: ReceivedMessage) -> list[Step]:
    """Return what happened to a message, the oldest first, and then where each group of its topic stands."""
    copies = _copies(backend, message)
    first = min(copies, key=lambda each: each.commit_log_offset)
    steps = [Step(first.born_timestamp, "born", "", f"keys {' '.join(first.keys) or '-'}, tags {first.tags or '-'}")]
    steps += [
        Step(copy.store_timestamp, _event(copy), _place(copy), f"attempts so far {copy.reconsume_times}")
        for copy in copies
    ]
    fullest = max(copies, key=lambda each: len(history(each.properties)))
    for failure in history(fullest.properties):
        said = f"attempt {failure.get('attempt')}: {failure.get('error')}: {failure.get('text')}"
        steps.append(Step(int(failure.get("at", 0)), "failed", str(failure.get("worker") or ""), said))
    steps += _stepped(backend, id_of(message))
    steps += _traced(backend, message.message_id)
    steps.sort(key=lambda step: step.at_ms or 0)
    return [*steps, *_settled(backend, copies), *_groups(backend, copies)]


def own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that are the application's, without those that belong to one stored message."""
    return {name: value for name, value in properties.items() if name not in RESERVED_PROPERTIES}


def _copies(backend: Backend, message: ReceivedMessage) -> list[ReceivedMessage]:
    """Return the message and what has its id in the retry and dead letter topics, without doubles."""
    topics = [name for name in backend.topics.names() if name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))]
    origin = message.properties.get("RETRY_TOPIC") or message.properties.get("DLQ_ORIGIN_TOPIC") or message.topic
    found = {(message.topic, message.queue_id, message.queue_offset): message}
    known = set(backend.topics.names())
    for topic in {origin, *topics} & known:
        for each in backend.messages.by_key(topic, message.message_id, 0, END_OF_TIME, _MOST_COPIES):
            found.setdefault((each.topic, each.queue_id, each.queue_offset), each)
    return sorted(found.values(), key=lambda each: each.commit_log_offset)


def _stepped(backend: Backend, message_id: str) -> Iterator[Step]:
    """Yield what is stored of the message's durable steps. Of records that were stored again, the first counts."""
    for topic in backend.topics.names():
        if topic.startswith(STEPS_PREFIX):
            seen: dict[int, Step] = {}
            for message in backend.messages.by_key(topic, message_id, 0, END_OF_TIME, _MOST_RECORDS):
                record = Record.of(message)
                if record is not None:
                    place = f"group {topic.removeprefix(STEPS_PREFIX)}"
                    seen[record.place] = Step(record.stored_ms, _STEP_EVENTS[record.kind], place, _said(record))
            yield from (seen[at] for at in sorted(seen))  # as in the log: several may be of one millisecond


def _said(record: Record) -> str:
    if record.kind in ("sleep", "wait"):
        until = datetime.fromtimestamp(int(record.body) / 1000, UTC).isoformat(timespec="milliseconds")
        return f"{record.name} until {until}"
    return record.name if record.kind == "timeout" else f"{record.name}, {len(record.body):,} bytes of {record.form}"


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
        yield Step(before.at_ms, "begun", f"group {before.group}", f"attempt {before.retries + 1}, end not told")


def _ended(after: SubAfter, before: SubBefore | None, message: ReceivedMessage) -> Step:
    attempt = f", attempt {before.retries + 1}" if before is not None else ""
    at_ms = after.at_ms or (before.at_ms + after.cost_ms if before is not None else message.born_timestamp)
    group = after.group or (before.group if before is not None else "")
    event = "handled" if after.success else "not handled"
    return Step(at_ms, event, f"group {group}", f"in {after.cost_ms} ms{attempt}")


def _told(record: Pub | EndTransaction) -> Step:
    if isinstance(record, EndTransaction):
        said = "after a check" if record.from_check else "by its producer"
        return Step(record.at_ms, "committed" if record.commit else "rolled back", f"group {record.group}", said)
    said = f"in {record.cost_ms} ms to {record.store_host}" + ("" if record.success else ", not confirmed")
    return Step(record.at_ms, "sent", f"group {record.group}", said)


def _settled(backend: Backend, copies: list[ReceivedMessage]) -> Iterator[Step]:
    for copy in copies:
        if copy.topic.startswith(DEAD_LETTER_PREFIX):
            group = copy.topic.removeprefix(DEAD_LETTER_PREFIX)
            for letter in select(backend, group, Selection(message_id=copy.message_id, done=True)):
                if letter.message.queue_offset == copy.queue_offset:
                    yield Step(None, letter.done or "waits", _place(copy), f"dead letter of {group}")


def _groups(backend: Backend, copies: list[ReceivedMessage]) -> Iterator[Step]:
    for group in backend.groups.all():
        for copy in copies:
            if not copy.topic.startswith(DEAD_LETTER_PREFIX):
                for name, standing in standings(group, copy):
                    yield Step(None, f"group {name}", _place(copy), standing.said)


class Standing(NamedTuple):
    """How a group stands with one record of a message."""

    what: str
    """``runs``, ``hangs``, ``waits``, ``skipped`` or ``finished``."""
    said: str


def standings(group: Group, message: ReceivedMessage) -> Iterator[tuple[str, Standing]]:
    """Yield how a group stands with a record, if it has its queue; of a broadcast group, each member by its name."""
    for each in group.queues:
        if (each.queue.topic, each.queue.queue_id) == (message.topic, message.queue_id):
            yield each.group, _standing(group, each, message)


def _standing(group: Group, each: GroupQueue, message: ReceivedMessage) -> Standing:
    offset, said = message.queue_offset, ""
    for call in group.calls:
        if (call.group, call.queue) == (each.group, each.queue) and call.queue_offset <= offset <= call.last_offset:
            what = "hangs" if call.age_s > HUNG_AFTER_S else "runs"
            return Standing(what, f"{what} for {age(call.age_s)} in process {call.pid}")
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


def _event(copy: ReceivedMessage) -> str:
    if copy.topic.startswith(RETRY_PREFIX):
        return "woken" if PAUSED in copy.properties else "retry stored"
    return "dead letter" if copy.topic.startswith(DEAD_LETTER_PREFIX) else "stored"


def _place(copy: ReceivedMessage) -> str:
    return f"{copy.topic} {copy.queue_id}:{copy.queue_offset}"
