"""Subscriptions: what the members of a group ask for, as other processes see it."""

from __future__ import annotations

from dataclasses import dataclass

from rmqclient import admin
from rmqclient.store import MessageStore


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
    for member in store.members().all():
        if member.group == group:
            members.pop((member.topic, None), None)
            members.setdefault((member.topic, member.subscription), []).append(member.client_id)
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
