"""Arguments: checks the arguments of a send, in its two forms.

==================================  ==========================================================
a call                              sends
==================================  ==========================================================
``send(message, sharding_key)``     the message
``send(topic, body, key=, ...)``    a message that is made of them
==================================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NoReturn

from rmqclient.backend.limits import Limits
from rmqclient.duration import LONGEST_DELAY, Duration, to_seconds
from rmqclient.message import Message
from rmqclient.store import Durability, StoreConfig
from rmqclient.store.numbers import whole


def meant(
    message: Message | str,
    second: Any,
    excess: object,
    sharding_key: str | None,
    key: str | None,
    tags: str | None,
    properties: Mapping[str, str] | None,
) -> tuple[Message, str | None]:
    """Return the message and the sharding key of a send's arguments. Raises TypeError."""
    if excess is not None:
        raise TypeError(
            f"{excess!r} is one argument too many: name what follows the first two, such as tags={excess!r}"
        )
    if isinstance(message, str):
        if second is None:
            check_given(message)
        keys = () if key is None else (key,)
        return Message(message, second, tags=tags, keys=keys, properties=properties), sharding_key
    if key is not None or tags is not None or properties is not None:
        given = f"key={key!r}, tags={tags!r}, properties={properties!r}"
        raise TypeError(f"{given}: give them to the Message, or send(topic, body) with them")
    if second is None:
        return message, sharding_key
    return message, second if sharding_key is None else refuse_two_keys(second, sharding_key)


def refuse_two_keys(second: object, sharding_key: str) -> NoReturn:
    """Raise TypeError for a sharding key that is given twice."""
    raise TypeError(f"send(message, {second!r}, sharding_key={sharding_key!r}) has two sharding keys: give one of them")


def check_given(message: object) -> None:
    """Raise TypeError, which says what to write, for a topic without a body or an object that is not a message."""
    if isinstance(message, str):
        raise TypeError(f"send({message!r}) has no body: give one, such as send({message!r}, b'')")
    check_message(message)


def check_message(message: object, call: str = "send") -> None:
    """Raise TypeError, which says what to write, for an object that is not a message."""
    if not isinstance(message, Message):
        raise TypeError(f'{call} takes a Message, not {type(message).__name__}: write {call}(Message("topic", body))')


def check_messages(messages: object) -> None:
    """Raise TypeError for one message, or a topic, where several are expected."""
    if isinstance(messages, Message | str | bytes):
        raise TypeError(f"send_batch takes a list of messages, not {type(messages).__name__}: write send_batch([...])")


def check_id(message_id: object) -> None:
    """Raise TypeError for a message id that is no text."""
    if not isinstance(message_id, str):
        raise TypeError(f"message_id={message_id!r}: give the id as text, such as the message_id of a send's result")


def check_middleware(middleware: object) -> None:
    """Raise TypeError for anything but a sequence of functions."""
    if not isinstance(middleware, Sequence) or not all(map(callable, middleware)):
        raise TypeError(f"middleware={middleware!r}: give a list of generator functions, such as [stamped]")


def once_meant(message: Message | str, second: Any, key: str | None) -> tuple[Message, str]:
    """Return the message and the key of ``send_once(message, key)`` or ``(topic, body, key=)``. Raises TypeError."""
    given, message = message, _made(message, second)
    if given is message and key is None:
        key = second
    if key is None:
        raise TypeError("send_once has no key: give one, by which the message is stored once, such as key='order-17'")
    return message, key


def request_meant(
    message: Message | str, second: Any, third: Any, sharding_key: str | None
) -> tuple[Message, Duration, str | None]:
    """Return the message, the timeout and the sharding key of a request's arguments. Raises TypeError."""
    given, message, timeout = message, _made(message, second), third
    if given is message and second is not None:
        timeout, sharding_key = second, sharding_key if third is None else third
    if timeout is None:
        raise TypeError("a request has no timeout: give one, in seconds, such as timeout=5")
    return message, timeout, sharding_key


def _made(message: Message | str, body: Any) -> Message:
    """Return the message, or make one of its topic and body. Raises TypeError."""
    if not isinstance(message, str):
        check_message(message)
        return message
    if body is None:
        check_given(message)
    return Message(message, body)


def check_write_buffer(write_buffer_bytes: int, settings: StoreConfig | Limits | None) -> None:
    """Raise TypeError or ValueError for an invalid size, and for a buffer with SYNC durability."""
    whole("write_buffer_bytes", write_buffer_bytes)
    if write_buffer_bytes and settings is not None and settings.durability is Durability.SYNC:
        raise ValueError(
            f"write_buffer_bytes={write_buffer_bytes} with Durability.SYNC: a buffer in memory cannot keep what that "
            "promises; give one of them"
        )


def window_of(within: Duration | None, kept_hours: int | None) -> timedelta | None:
    """Return ``within`` as a timedelta.

    ``kept_hours`` is the retention time; None if it is not known. Raises ValueError if ``within`` is not positive or
    exceeds it, TypeError for anything except a duration.
    """
    if within is None:
        return None
    seconds = to_seconds("within", within)
    if kept_hours is not None and not 0 < seconds <= kept_hours * 3600:
        raise ValueError(
            f"within={within!r}: a window is positive and at most {kept_hours} hours, for which the store keeps "
            "messages (file_reserved_hours); None looks at all that it has"
        )
    if not seconds > 0:
        raise ValueError(f"within={within!r}: a window is positive")
    return timedelta(seconds=min(seconds, LONGEST_DELAY.total_seconds()))
