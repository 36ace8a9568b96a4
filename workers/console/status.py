"""The banner of a supervisor, and rows of topics, groups, workers and messages.

A row is a mapping with stable keys, the same for the table, for JSON and for ``--query``. Units are in the keys.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmqclient.workers.console import layout

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from rmqclient import ReceivedMessage, SendResult
    from rmqclient.admin import Group, QueueInfo, TopicInfo
    from rmqclient.admin.workers import WorkerStatus
    from rmqclient.failures.dead_letters import DeadLetter
    from rmqclient.handler import Handler
    from rmqclient.schedules.cron import Cron

Row = Mapping[str, Any]

_BANNER_HANDLERS = 5


def banner(
    place: object, handlers: Sequence[Handler], *, processes: int, durability: str, crons: Sequence[Cron] = ()
) -> str:
    """Return under ten lines: where the data is, what runs, and how durable a send is."""
    lines = [f"store       {place}  (durability: {durability})", f"workers     {processes}"]
    for number, handler in enumerate(handlers[:_BANNER_HANDLERS]):
        lines.append(f"{'' if number else 'handlers':<12}{_handler_line(handler)}")
    if len(handlers) > _BANNER_HANDLERS:
        lines.append(f"{'':<12}and {len(handlers) - _BANNER_HANDLERS} more")
    if crons:
        more = f" and {len(crons) - 1} more" if len(crons) > 1 else ""
        lines.append(f"schedules   {crons[0].name} -> {crons[0].topic}  {crons[0].when}{more}")
    lines.append("Ctrl-C stops after the messages in flight")
    return "\n".join(lines)


def _handler_line(handler: Handler) -> str:
    parts = [f"{handler.topic} -> {handler.group}", f"tags {handler.tags}"]
    parts += handler.filter_texts
    parts += ["1 thread" if handler.threads == 1 else f"{handler.threads} threads"]
    parts += [f"ordered by {handler.order}"] if handler.order else []
    parts += [f"batches of {handler.batch.size}"] if handler.batch else []
    parts += ["broadcast"] if handler.broadcast else []
    return "  ".join(parts)


def _broker(name: str) -> Row:
    """The broker of a queue; a store has none to show."""
    return {"broker": name} if name else {}


def topic_row(info: TopicInfo) -> Row:
    """One topic of a list."""
    return {"topic": info.topic, "queues": len(info.queues), "messages": info.messages}


def topic_detail(info: TopicInfo) -> Row:
    """One topic with its queues."""
    return {
        "topic": info.topic,
        "cleanup_policy": info.cleanup_policy,
        "messages": info.messages,
        "queues": queue_rows(info),
    }


def queue_rows(info: TopicInfo) -> list[Row]:
    """The queues of one topic; ``max_offset`` is the ``queue_offset`` that the next message gets.

    If any of them is closed for writing or reading, each row says what its queue is open for.
    """
    is_usual = all(queue.is_written and queue.is_read for queue in info.queues)
    return [
        {
            **_broker(queue.broker_name),
            "queue_id": queue.queue_id,
            "min_offset": queue.min_offset,
            "max_offset": queue.max_offset,
            "messages": queue.max_offset - queue.min_offset,
            **({} if is_usual else {"open_for": _open_for(queue)}),
        }
        for queue in info.queues
    ]


def _open_for(queue: QueueInfo) -> str:
    return " and ".join(["sends"] * queue.is_written + ["consumers"] * queue.is_read) or "nobody"


def group_row(info: Group) -> Row:
    """One group of a list."""
    return {
        "group": info.group,
        "topics": list(info.topics),
        "members": len(info.members),
        "spare": len(info.spare),
        "lag": info.lag,
        "waiting": info.waiting,
        "state": info.state,
    }


def row_of(info: DataclassInstance) -> Row:
    """The fields of an info of administration; the broker of a queue only where there is one."""
    row = {}
    for name in info.__dataclass_fields__:
        value = getattr(info, name)
        if name != "broker_name":
            row[name] = list(value) if isinstance(value, tuple) else value
        elif value:
            row["broker"] = value
    return row


def worker_row(status: WorkerStatus) -> Row:
    """One worker; ages are None before its first beat and when no message is in flight."""
    return {
        "slot": status.slot,
        "pid": status.pid,
        "supervisor_pid": status.supervisor_pid,
        "state": status.state.name.lower(),
        "beat_age_ms": rounded(status.beat_age_ms, 1),
        "message_age_ms": rounded(status.message_age_ms, 1),
        "in_flight": status.in_flight,
        "handled": status.handled,
        "failed": status.failed,
    }


def sent_row(result: SendResult) -> Row:
    """Where a sent message is."""
    return {
        "message_id": result.message_id,
        "topic": result.queue.topic,
        "queue_id": result.queue.queue_id,
        "queue_offset": result.queue_offset,
        "commit_log_offset": result.commit_log_offset,
    }


def message_row(message: ReceivedMessage) -> Row:
    """A message; see :func:`rmqclient.admin.export.exported`."""
    from rmqclient.admin.export import exported  # noqa: PLC0415 - a command imports what it needs

    return exported(message)


def dead_letter_row(letter: DeadLetter) -> Row:
    """One dead letter of a list."""
    return {
        "queue_offset": letter.message.queue_offset,
        "message_id": letter.message.message_id,
        "topic": letter.topic,
        "keys": list(letter.message.keys),
        "attempts": letter.attempts,
        "given_up": layout.local_time(letter.message.store_timestamp),
        "done": letter.done,
        "error": letter.error,
    }


def dead_letter_detail(letter: DeadLetter) -> Row:
    """One dead letter with its history and its message."""
    return {**dead_letter_row(letter), "failures": letter.failures, "message": message_row(letter.message)}


def exported_letter(letter: DeadLetter) -> Row:
    """One dead letter with everything that a copy elsewhere needs: its message as it was sent, and its failures."""
    message = message_row(letter.message)
    kept = ("body", "body_base64", "body_error", "tags", "sharding_key", "flag")
    given = {name: message[name] for name in kept if name in message}
    return {
        **dead_letter_row(letter),
        "group": letter.group,
        **given,
        "properties": letter.own_properties,
        "born_timestamp": letter.message.born_timestamp,
        "failures": letter.failures,
    }


def dead_letter_lines(letter: DeadLetter) -> list[str]:
    """The same for a person, with the tracebacks as they are."""
    row = {**dead_letter_row(letter), "done": letter.done or "waiting", "keys": " ".join(letter.message.keys) or "-"}
    lines = [f"{layout.label(name):<13} {value}" for name, value in row.items()]
    for failure in letter.failures:
        when = layout.local_time(int(failure.get("at", 0)))
        error = printable(f"{failure.get('error')}: {failure.get('text')}".encode())
        lines.append(f"attempt {failure.get('attempt')}  {when}  {failure.get('worker') or '-'}  {error}")
        lines += [printable(line.encode()) for line in own_frames(str(failure.get("trace", "")))]
    return [*lines, f"body          {_shown_body(letter.message)}"]


def own_frames(trace: str) -> list[str]:
    """Return the lines of a traceback without the frames of this package, which say nothing about the handler."""
    lines, kept = trace.splitlines(), []
    skipping = False
    for line in lines:
        if line.startswith('  File "'):
            skipping = f"{os.sep}rmqclient{os.sep}" in line
        elif not line.startswith("    "):
            skipping = False
        if not skipping:
            kept.append(line)
    return kept


def message_page(message: ReceivedMessage) -> list[str]:
    """One message as a page for a person."""
    lines = [
        f"id            {message.message_id}",
        f"topic         {message.topic}",
        f"place         {message.queue_id}:{message.queue_offset}  (commit log {message.commit_log_offset})",
        f"stored        {layout.local_time(message.store_timestamp)}",
        f"born          {layout.local_time(message.born_timestamp)}",
        f"tags          {message.tags or '-'}",
        f"keys          {' '.join(message.keys) or '-'}",
        f"attempts      {message.reconsume_times}",
    ]
    lines += [f"{'sharding key':<13} {message.sharding_key}"] if message.sharding_key else []
    lines += [f"property      {printable(f'{name}={value}'.encode())}" for name, value in message.properties.items()]
    return [*lines, f"body          {_shown_body(message)}"]


def message_line(message: ReceivedMessage) -> str:
    """A message as one line of text: queue and offset, local time, tags, keys, body. Control characters are escaped."""
    when = layout.local_time(message.store_timestamp)
    labels = " ".join([message.tags or "-", *message.keys])
    return f"{message.queue_id}:{message.queue_offset}  {when}  {labels}  {_shown_body(message)}"


def printable(body: bytes) -> str:
    """Text that cannot drive a terminal: control characters and bytes that are not UTF-8 become escapes."""
    return layout.printable(body.decode("utf-8", errors="backslashreplace"))


def _shown_body(message: ReceivedMessage) -> str:
    from rmqclient.admin.export import opened  # noqa: PLC0415 - as above

    body, error = opened(message)
    return printable(body if error is None else f"<{error}>".encode())


def rounded(number: float | None, digits: int) -> float | None:
    """Return a number with so many digits behind the point; None is not known."""
    return None if number is None else round(number, digits)
