"""Faults for whole runs: each changes the product in the child processes of a run, before they begin.

A fault of the product shows in what real processes then do; the made-up histories of ``test_checker.py`` have one
anomaly each instead.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

from rmqclient.calling.event_loop import EventLoop
from rmqclient.calling.hooks import Hooks
from rmqclient.delivery import caller
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.handler import Handler
from rmqclient.message import Message, SendResult
from rmqclient.sending.producer import Producer
from rmqclient.store import Member, MessageStore
from rmqclient.store.handles.grants import Grants
from rmqclient.store.runtime.group_table import GroupQueueSlot

_ONE_IN = 50


def _acknowledge_before_handling() -> None:
    take = ProcessQueue.take_new

    def eager(self: ProcessQueue) -> Any:
        batch = take(self)
        for message in batch:
            self.grant.acknowledge(message)
        return batch

    ProcessQueue.take_new = eager  # type: ignore[method-assign]


def _drop_a_message() -> None:
    take, turn = ProcessQueue.take_new, itertools.count(1)

    def forgetful(self: ProcessQueue) -> Any:
        batch = take(self)
        if batch and next(turn) % _ONE_IN == 0:
            self.grant.acknowledge_offsets([batch[0].queue_offset])
            self.settle(batch[:1])
            return batch[1:]
        return batch

    ProcessQueue.take_new = forgetful  # type: ignore[method-assign]


def _handle_twice() -> None:
    make_caller = caller.make_caller

    def twice(handler: Handler, hooks: Hooks, loop: EventLoop) -> Callable[[Any], Any]:
        call = make_caller(handler, hooks, loop)

        def both(message: Any) -> None:
            call(message)
            if message.queue_offset % _ONE_IN == 0:
                call(message)

        return both

    caller.make_caller = twice


def _die_in_a_handler() -> None:
    make_caller = caller.make_caller

    def deadly(handler: Handler, hooks: Hooks, loop: EventLoop) -> Callable[[Any], Any]:
        call = make_caller(handler, hooks, loop)

        def once_too_often(message: Any) -> None:
            if message.queue_offset == 1_000 and message.queue_id == 0:
                os._exit(3)
            call(message)

        return once_too_often

    caller.make_caller = deadly


class _ChangedGrant:
    """A grant with another way to acknowledge."""

    __slots__ = ("_grant", "acknowledge", "acknowledge_offsets")

    def __init__(self, grant: Any, acknowledge: Callable[[Any], bool], offsets: Callable[[Any], bool]) -> None:
        object.__setattr__(self, "_grant", grant)
        object.__setattr__(self, "acknowledge", acknowledge)
        object.__setattr__(self, "acknowledge_offsets", offsets)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grant, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._grant, name, value)


def _drop_the_fence() -> None:
    grant = Grants.grant

    def unfenced(self: Grants, slot: GroupQueueSlot, epoch: int, *filters: Any) -> Any:
        granted = grant(self, slot, epoch, *filters)

        def acknowledge(message: Any) -> bool:
            return offsets([message.queue_offset])

        def offsets(finished: list[int]) -> bool:
            if not granted.acknowledge_offsets(finished):
                grant(self, slot, slot.load("epoch"), *filters).acknowledge_offsets(finished)
            return True

        return _ChangedGrant(granted, acknowledge, offsets)

    Grants.grant = unfenced  # type: ignore[method-assign, assignment]


def _forget_an_acknowledgement() -> None:
    grant = Grants.grant

    def forgetful(self: Grants, slot: GroupQueueSlot, epoch: int, *filters: Any) -> Any:
        granted = grant(self, slot, epoch, *filters)

        def acknowledge(message: Any) -> bool:
            return message.queue_offset % 1_000 == 999 or granted.acknowledge(message)

        return _ChangedGrant(granted, acknowledge, granted.acknowledge_offsets)

    Grants.grant = forgetful  # type: ignore[method-assign, assignment]


def _begin_behind_the_committed_offset() -> None:
    grant = Grants.grant

    def hasty(self: Grants, slot: GroupQueueSlot, epoch: int, *filters: Any) -> Any:
        granted = grant(self, slot, epoch, *filters)
        committed = granted.committed_offset
        skipped = [message.queue_offset for message in granted.take(10, 2_000)]
        granted.acknowledge_offsets(skipped)
        return _Pretending(granted, committed)

    Grants.grant = hasty  # type: ignore[method-assign, assignment]


class _Pretending(_ChangedGrant):
    """A grant that shows the committed offset which it should have begun at."""

    __slots__ = ("committed_offset",)

    def __init__(self, grant: Any, committed_offset: int) -> None:
        super().__init__(grant, grant.acknowledge, grant.acknowledge_offsets)
        object.__setattr__(self, "committed_offset", committed_offset)


def _set_the_committed_offset_back() -> None:
    grant = Grants.grant

    def nostalgic(self: Grants, slot: GroupQueueSlot, epoch: int, *filters: Any) -> Any:
        if slot.committed_offset > 100:
            with slot.locked(1_000):
                slot.restore(slot.committed_offset - 100, 0, slot.load("epoch"))
        return grant(self, slot, epoch, *filters)

    Grants.grant = nostalgic  # type: ignore[method-assign, assignment]


def _take_queues_that_are_not_free() -> None:
    Member._is_free = lambda *_: True  # type: ignore[method-assign]


def _send_nothing_now_and_then() -> None:
    send, turn = Producer.send_batch, itertools.count(1)
    last: list[SendResult] = []

    def lazy(
        self: Producer, messages: Sequence[Message], sharding_key: str | None = None, **delay: Any
    ) -> list[SendResult]:
        if next(turn) % _ONE_IN:
            last[:] = send(self, messages, sharding_key, **delay)
        return last

    Producer.send_batch = lazy  # type: ignore[method-assign]


def _send_twice_now_and_then() -> None:
    send, turn = Producer.send_batch, itertools.count(1)

    def eager(
        self: Producer, messages: Sequence[Message], sharding_key: str | None = None, **delay: Any
    ) -> list[SendResult]:
        if next(turn) % _ONE_IN == 0:
            send(self, messages, sharding_key, **delay)
        return send(self, messages, sharding_key, **delay)

    Producer.send_batch = eager  # type: ignore[method-assign]


def _send_something_else_now_and_then() -> None:
    send, turn = Producer.send_batch, itertools.count(1)

    def careless(
        self: Producer, messages: Sequence[Message], sharding_key: str | None = None, **delay: Any
    ) -> list[SendResult]:
        if next(turn) % _ONE_IN == 0:
            messages = [Message(messages[0].topic, bytes(str(messages[0].body), "ascii")), *messages[1:]]
        return send(self, messages, sharding_key, **delay)

    Producer.send_batch = careless  # type: ignore[method-assign]


def _keep_a_descriptor() -> None:
    close = MessageStore.close

    def leaky(self: MessageStore) -> None:
        os.open(self.root / "lock", os.O_RDONLY)
        close(self)

    MessageStore.close = leaky  # type: ignore[method-assign]


PLANTED: dict[str, Callable[[], None]] = {
    "acknowledged before handled": _acknowledge_before_handling,
    "a message dropped": _drop_a_message,
    "handled twice": _handle_twice,
    "a handler that ends its process": _die_in_a_handler,
    "no fence": _drop_the_fence,
    "an acknowledgement forgotten": _forget_an_acknowledgement,
    "begun behind the committed offset": _begin_behind_the_committed_offset,
    "the committed offset set back": _set_the_committed_offset_back,
    "queues taken from their owners": _take_queues_that_are_not_free,
    "sent and not stored": _send_nothing_now_and_then,
    "sent twice": _send_twice_now_and_then,
    "sent something else": _send_something_else_now_and_then,
    "a descriptor kept": _keep_a_descriptor,
}
