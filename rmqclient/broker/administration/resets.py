"""Resets: moving a group in a topic to a time, to an offset, or to the offsets of another group.

The offsets in the store are moved, as in 5.x, so members need not be online. The owner of a queue loses it: local
members take it again at the new offset, and remote ones are told by request 220. A 4.9 broker only tells the members,
and refuses if there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial

from rmqclient.backend.group_protocols import Move
from rmqclient.broker.administration.connections import LocalMembers
from rmqclient.broker.administration.consumption import AnswerLater
from rmqclient.broker.administration.progress import Progress
from rmqclient.broker.clients.clients import Clients
from rmqclient.broker.clients.member import Consumer
from rmqclient.broker.clients.notices import tell_offsets
from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.request import Request
from rmqclient.broker.routes import ADMINISTRATOR, Route
from rmqclient.broker.stored_names import stored_group
from rmqclient.broker.topics.topics import Topics
from rmqclient.local.backend import local_backend
from rmqclient.names import group_and_member
from rmqclient.remoting.bodies import ResetOffset
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue, MessageStore

_THE_END = -1
"""The time that stands for the end of every queue."""


class Resets:
    """Moves groups."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        settings: GroupSettings,
        progress: Progress,
        clients: Clients,
        local: LocalMembers,
        broker_name: str,
        answer_later: AnswerLater,
        *,
        read_only: bool,
    ) -> None:
        self._store = store
        self._backend = local_backend(store)
        self._topics = topics
        self._settings = settings
        self._progress = progress
        self._clients = clients
        self._local = local
        self._broker_name = broker_name
        self._answer_later = answer_later
        self._is_read_only = read_only

    def routes(self) -> Iterable[Route]:
        """Declare requests that move groups. A stock broker allows them to every key."""
        yield Route(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self._reset, needs=ADMINISTRATOR, writes=True)
        yield Route(RequestCode.CLONE_GROUP_OFFSET, self._clone, needs=ADMINISTRATOR, writes=True, slow=True)

    def _reset(self, request: Request) -> None:
        group = request.fields["group"]
        members = self._clients.consumers.of(group)
        is_known = bool(members or self._local.of_group(group)) or self._settings.find(group) is not None
        keeping = [member for member in members if member.is_broadcast]
        loop = asyncio.get_running_loop()
        self._answer_later(lambda asked: self._moved(asked, is_known, keeping, loop), request)

    def _moved(
        self, request: Request, is_known: bool, keeping: list[Consumer], loop: asyncio.AbstractEventLoop
    ) -> Frame:
        """Move a group. ``keeping`` are members that store their own offsets; they are only notified."""
        topic, group = request.fields["topic"], request.fields["group"]
        self._refuse_when_read_only()
        if self._topics.config(topic) is None:
            raise AnswerError(
                ResponseCode.SYSTEM_ERROR, f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}"
            )
        present = self._progress.offsets(group).get(topic, {})
        if not is_known and not present:
            raise AnswerError(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
        targets = self._targets(request, present)
        self._seek(group, targets, request)
        renamed = {queue._replace(broker_name=self._broker_name): at for queue, at in targets.items()}
        for member in keeping:
            loop.call_soon_threadsafe(partial(tell_offsets, member, topic, renamed))
        return request.success(ResetOffset(renamed).encode())

    def _targets(self, request: Request, present: Mapping[int, int]) -> dict[MessageQueue, int]:
        """Return each queue's new offset. Without force a group never moves forwards. [Broker2Client.resetOffset]"""
        fields = request.fields
        queue_id, offset = fields.get("queueId", -1), fields.get("offset", -1)
        targets = {}
        for queue in self._topics.open(fields["topic"]):
            if queue_id not in (-1, queue.queue_id):
                continue
            low, high = self._store.topics.min_offset(queue), self._store.topics.max_offset(queue)
            if offset >= 0:
                at = min(max(offset, low), high)
            elif fields["timestamp"] == _THE_END:
                at = high
            else:
                at = self._store.messages.offset_by_time(queue, fields["timestamp"])
            before = present.get(queue.queue_id, high)
            targets[queue] = at if fields["isForce"] or at < before or queue.queue_id not in present else before
        return targets

    def _clone(self, request: Request) -> Frame:
        """Move a group to the offsets of another one, in one topic or in all."""
        self._refuse_when_read_only()
        fields = request.fields
        for topic, offsets in self._progress.offsets(fields["srcGroup"]).items():
            if fields.get("topic") in (None, "", topic) and not topic.startswith("%"):
                self._settings.auto_create(fields["destGroup"], request.peer.remote)
                targets = {MessageQueue(topic, number): at for number, at in offsets.items()}
                self._seek(fields["destGroup"], targets, request)
        return request.success()

    def _seek(self, group: str, targets: Mapping[MessageQueue, int], request: Request) -> None:
        """Move a group, and each of its local members that keeps its own offsets; the store's marks name the client."""
        group = stored_group(group)
        names = sorted(self._names(group, targets)) or [group]
        move = Move({(name, queue): at for name in names for queue, at in targets.items()})
        self._backend.groups.seek(move)
        if targets:
            self._store.marks.write("seek", group, move.in_words, author=str(request.peer.remote))

    def _names(self, group: str, queues: Iterable[MessageQueue]) -> set[str]:
        moved = set(queues)
        return {
            slot.group
            for slot in self._store.groups
            if group_and_member(slot.group)[0] == group and self._store.topics.queue(slot.queue_slot) in moved
        }

    def _refuse_when_read_only(self) -> None:
        if self._is_read_only:
            raise AnswerError(ResponseCode.NO_PERMISSION, "this server is for reading only")
