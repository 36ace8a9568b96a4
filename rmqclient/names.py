"""Names of topics, groups, schedules, members and functions, and how many queues a topic may have.

A topic or a group has 1 to 127 of the characters ``%``, ``a-z``, ``A-Z``, ``0-9``, ``_`` and ``-``.

The limit comes from the record, which keeps the size of its topic in one signed byte (RocketMQ's TopicValidator and
Validators.checkGroup). Names become directories, so the alphabet lacks ``.`` and ``/``.

Topics that begin with ``%RETRY%``, ``%DLQ%`` or ``%STEPS%`` belong to the library: it makes one of each for a group,
for messages that a handler could not finish and for the results of durable steps. ``SCHEDULE_TOPIC_XXXX`` and
``rmq_sys_wheel_timer``, where delayed messages wait, belong to the store, and so do ``RMQ_SYS_TRANS_HALF_TOPIC`` and
``RMQ_SYS_TRANS_OP_HALF_TOPIC``, the topics of transactions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rmqclient.store import HALF_TOPIC, OPERATION_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from rmqclient.store.errors import InvalidName, MessageRejected, TableFull
from rmqclient.store.numbers import whole
from rmqclient.store.texts import is_utf8

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
STEPS_PREFIX = "%STEPS%"
MAX_NAME_CHARACTERS = 127
MAX_QUEUES = 1_024

HANDOVER_SUFFIX = "%handover"
"""Behind the name of a group under which its members lock queues that they do not handle in order."""

MEMBER_SEPARATOR = "|"
"""Between a broadcast group and the member that keeps offsets of its own under this name."""

PRODUCER_GROUP = "rmq-producer"
CRON_GROUP = "rmq-cron"
OUTBOX_GROUP = "rmq-outbox"
COMMAND_GROUP = "rmq-cli"
"""Groups of producers for which the application names none: ``rmq-`` and the sender."""

_SYSTEM_TOPICS = (SCHEDULE_TOPIC, "TRANS_CHECK_MAX_TIME_TOPIC", "rmq_sys_", "RMQ_SYS_", STEPS_PREFIX)
"""How their names begin [TopicValidator]; ours are the results of durable steps."""

_NAME = re.compile(rf"[%a-zA-Z0-9_-]{{1,{MAX_NAME_CHARACTERS}}}")
_SHOWN_CHARACTERS = 60


def check_topic(topic: str, *, reserved: bool = False) -> str:
    """Return ``topic`` if messages may be sent to it; with ``reserved=True`` also a retry or dead letter topic.

    Raises InvalidName, which says what is wrong and what to do.
    """
    _check("topic", topic)
    if topic == SCHEDULE_TOPIC:
        raise InvalidName(
            f"topic {_shown(topic)}: it holds delayed messages; send to the topic that the messages are for, with a "
            "delay_level"
        )
    if topic == TIMER_TOPIC:
        raise InvalidName(
            f"topic {_shown(topic)}: it holds delayed messages; send to the topic that the messages are for, with a "
            "delay or deliver_at"
        )
    if topic in (HALF_TOPIC, OPERATION_TOPIC):
        raise InvalidName(
            f"topic {_shown(topic)}: it holds undecided transactions; send to the topic that the messages are for"
        )
    if not reserved and topic.startswith(STEPS_PREFIX):
        raise InvalidName(
            f"topic {_shown(topic)}: names that begin with {STEPS_PREFIX} are reserved for the results of durable "
            "steps; send to another topic, or use signal() for what a step waits for"
        )
    if not reserved and topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        raise InvalidName(
            f"topic {_shown(topic)}: names that begin with {RETRY_PREFIX} or {DEAD_LETTER_PREFIX} are reserved for "
            "messages that a handler could not finish; send to another topic"
        )
    return topic


def check_queue_count(queue_count: int) -> int:
    """Return ``queue_count`` when a topic may have so many queues. Raises TypeError, ValueError, TableFull."""
    whole("queue_count", queue_count, 1)
    if queue_count > MAX_QUEUES:
        raise TableFull(f"queue_count={queue_count}: a topic has at most {MAX_QUEUES:,} queues")
    return queue_count


def check_sharding_key(key: str | None) -> None:
    """Raise MessageRejected for an empty sharding key and half of a surrogate pair, TypeError for what is no text."""
    if key is not None and not isinstance(key, str):
        raise TypeError(f"sharding_key={key!r}: must be text, such as sharding_key={str(key)!r}")
    if key == "":
        raise MessageRejected("sharding key '': an empty one would come back as None: leave it out, or give None")
    if key is not None:
        check_utf8("sharding key", key)


def check_utf8(what: str, text: str) -> None:
    """Raise MessageRejected for a text that UTF-8 cannot hold."""
    if not is_utf8(text):
        raise MessageRejected(f"{what} {text[:80]!r} cannot be stored as UTF-8: it has half of a surrogate pair")


def check_group(group: str) -> str:
    """Return ``group`` if a group may have this name. Raises InvalidName, which says what is wrong and what to do."""
    return _check("group", group)


def check_schedule(name: str) -> str:
    """Return ``name`` if a schedule may have it. Raises InvalidName, which says what is wrong and what to do."""
    return _check("schedule", name)


def function_name(function: Callable[..., Any]) -> str:
    """Return ``module:qualname``: of the function inside a ``partial``, of the class of a callable object."""
    named = getattr(function, "func", function)
    if not hasattr(named, "__qualname__"):
        named = type(named)
    return f"{named.__module__}:{named.__qualname__}"


def check_member(member: str) -> str:
    """Return ``member`` if a member of a broadcast group may have this name; the alphabet is that of groups.

    Raises InvalidName, which says what is wrong and what to do.
    """
    return _check("member", member)


def _check(kind: str, name: object) -> str:
    if not isinstance(name, str):
        raise InvalidName(f"{kind} {_shown(name)}: a name is a str, not {type(name).__name__}")
    if not _NAME.fullmatch(name):
        raise InvalidName(f"{kind} {_shown(name)}: {_what_to_do(name)}")
    return name


def _what_to_do(name: str) -> str:
    rule = f"a name has 1 to {MAX_NAME_CHARACTERS} of the characters % a-z A-Z 0-9 _ -"
    if not name:
        return f"{rule}; give one"
    wrong = sorted(set(re.sub(r"[%a-zA-Z0-9_-]", "", name)))
    if wrong:
        return f"{rule}; replace {' '.join(map(repr, wrong[:5]))}, for instance by '-'"
    return f"{rule}; shorten it, it has {len(name):,}"


def _shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def group_and_member(name: str) -> tuple[str, str | None]:
    """Return the group and the member that the name of a group of offsets stands for; None if not broadcast."""
    group, separator, member = name.partition(MEMBER_SEPARATOR)
    return group, member if separator else None


def is_of_application(topic: str) -> bool:
    """Return whether applications send to a topic: it is none of the library's own."""
    return not is_system(topic) and not has_copies(topic)


def is_system(topic: str) -> bool:
    """Return whether a topic serves delays, transactions, traces or durable steps."""
    return topic.startswith(_SYSTEM_TOPICS)


def has_copies(topic: str) -> bool:
    """Return whether a topic has the retries or the dead letters of a group."""
    return topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
