"""Administration: what the command line shows of a backend and changes in it.

:class:`Admin` is for topics and groups, ``infos`` holds what it returns, ``workers`` is for the processes of ``rmq
run``, ``stacks`` asks one for what its threads run, and ``threads`` reads the answer. ``export`` writes a message as
``rmq send --jsonl`` reads it.
"""

from __future__ import annotations

from rmqclient.admin.admin import Admin, Position
from rmqclient.admin.infos import (
    CleanInfo,
    MemberAssignment,
    QueueInfo,
    QueueLag,
    SeekInfo,
    Subscription,
    TopicInfo,
)
from rmqclient.store.observe.summary import Group

__all__ = [
    "Admin",
    "CleanInfo",
    "Group",
    "MemberAssignment",
    "Position",
    "QueueInfo",
    "QueueLag",
    "SeekInfo",
    "Subscription",
    "TopicInfo",
]
