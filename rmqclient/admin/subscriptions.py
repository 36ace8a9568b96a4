"""Subscriptions: what the members of a group ask for, as other processes see it."""

from __future__ import annotations

from dataclasses import dataclass

from rmqclient import admin
from rmqclient.groups.members import MemberTable
from rmqclient.store import MessageStore, layout
from rmqclient.store.runtime.shared_state import member_slot_at

_AT = layout.MEMBER_SLOT.at
_MOST_BYTES = 512


@dataclass(frozen=True, slots=True)
class Subscription:
    """The members of a group that ask for the same messages of a topic."""

    topic: str
    subscription: str | None
    """Tags, filters and the like; None when no member runs."""
    members: tuple[str, ...]
    """Client ids, sorted."""
    queues: int
    """That the group has consumed from, with a member or without."""
    lag: int
    """Messages of all these queues that are not finished."""


def subscriptions_of(store: MessageStore, group: str) -> list[Subscription]:
    """Return what a group subscribes to, by topic. Members of one topic that disagree are in several of them.

    A topic that nobody consumes just now is there, too. Raises InvalidName.
    """
    lags = admin.lag(store, group)
    members: dict[tuple[str, str | None], list[str]] = {(queue.topic, None): [] for queue in lags}
    for member in MemberTable(store).all():
        if member.group == group:
            members.pop((member.topic, None), None)
            members.setdefault((member.topic, _text(store, member.slot)), []).append(member.client_id)
    return [
        Subscription(
            topic=topic,
            subscription=text,
            members=tuple(sorted(clients)),
            queues=sum(queue.topic == topic for queue in lags),
            lag=sum(queue.lag for queue in lags if queue.topic == topic),
        )
        for (topic, text), clients in sorted(members.items(), key=lambda item: (item[0][0], item[0][1] or ""))
    ]


def _text(store: MessageStore, slot: int) -> str:
    at = member_slot_at(slot)
    size = min(_MOST_BYTES, store.state.words.load32(at + _AT["subscription_size"]))
    return store.state.text(at + _AT["subscription"], size)
