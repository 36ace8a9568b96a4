"""Consumption: progress of groups, which groups consume a topic, and moving a group.

The event loop's thread notes the connected members; a thread of the pool then reads the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rmqclient.broker.administration.connections import LocalMembers, subscribed
from rmqclient.broker.administration.progress import Progress
from rmqclient.broker.administration.rates import Offsets, Rates
from rmqclient.broker.clients.clients import Clients
from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.request import Handler, Request
from rmqclient.broker.routes import ADMINISTRATOR, ANY, Route, of_topic, of_topic_and_group
from rmqclient.broker.topics.topics import Topics, unknown
from rmqclient.remoting.bodies import ConsumeStats, ConsumeStatsList, ConsumeTimeSpans, GroupList
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import clock

AnswerLater = Callable[[Handler, Request], None]
"""Runs a handler in a thread of the pool, and sends what it returns."""


class Consumption:
    """Answers requests about the progress of groups."""

    def __init__(
        self,
        topics: Topics,
        settings: GroupSettings,
        progress: Progress,
        rates: Rates,
        clients: Clients,
        local: LocalMembers,
        answer_later: AnswerLater,
    ) -> None:
        self._topics = topics
        self._settings = settings
        self._progress = progress
        self._rates = rates
        self._clients = clients
        self._local = local
        self._answer_later = answer_later

    def routes(self) -> Iterable[Route]:
        """Declare requests about the progress of groups."""
        yield Route(RequestCode.GET_CONSUME_STATS, self._group, needs=of_topic_and_group(), writes=False)
        yield Route(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, self._consuming, needs=of_topic(ANY), writes=False)
        yield Route(RequestCode.GET_BROKER_CONSUME_STATS, self._all, needs=ADMINISTRATOR, writes=False, slow=True)
        yield Route(
            RequestCode.QUERY_CONSUME_TIME_SPAN,
            self._spans,
            needs=of_topic_and_group("group"),
            writes=False,
            slow=True,
        )

    def _group(self, request: Request) -> None:
        wanted = subscribed(self._clients, self._local, request.fields["consumerGroup"])
        self._answer_later(lambda asked: self._stats(asked, wanted), request)

    def _stats(self, request: Request, wanted: set[str]) -> Frame:
        """Answer a group's progress in one topic, or in all topics with an offset that it still consumes."""
        group, topic = request.fields["consumerGroup"], request.fields.get("topic")
        offsets = self._progress.offsets(group)
        if topic:
            offsets = {topic: offsets.get(topic, {})}
        elif wanted:
            offsets = {name: offsets[name] for name in offsets if name in wanted}
        rate = sum(self._per_second(group, name) for name in offsets)
        return request.success(
            self._progress.stats(offsets, round(rate, 3), request.frame.version).encode(as_fastjson=True)
        )

    def _consuming(self, request: Request) -> None:
        topic = request.fields["topic"]
        online = {group for group in self._clients.consumers.groups() if self._clients.subscription(group, topic)}
        online |= self._local.groups_of(topic)
        self._answer_later(lambda asked: self._groups_of(asked, online), request)

    def _groups_of(self, request: Request, online: set[str]) -> Frame:
        groups = online.union(self._progress.groups_of(request.fields["topic"]))
        return request.success(GroupList(tuple(sorted(groups))).encode())

    def _all(self, request: Request) -> Frame:
        """Answer every group's progress in each topic; with ``isOrder`` only in ordered topics."""
        only_ordered, version = request.fields["isOrder"], request.frame.version
        stats: list[dict[str, tuple[ConsumeStats, ...]]] = []
        stored, now = self._progress.all_offsets(), self._rates.sample()
        of_groups = {self._settings.name_of(group): offsets for group, offsets in stored.items()}
        for group in sorted({*of_groups, *self._settings.table().groups}):
            found = [
                self._progress.stats({topic: offsets}, self._per_second(group, topic, now), version)
                for topic, offsets in of_groups.get(group, {}).items()
                if not only_ordered or self._is_ordered(topic)
            ]
            stats.append({group: tuple(found)})
        behind = self._progress.behind(one for entry in stats for ones in entry.values() for one in ones)
        body = ConsumeStatsList(tuple(stats), str(request.peer.local), behind)
        return request.success(body.encode(as_fastjson=True))

    def _per_second(self, group: str, topic: str, now: Offsets | None = None) -> float:
        return self._rates.finished.per_second(self._rates.slots_of_group(group, topic), now)

    def _is_ordered(self, topic: str) -> bool:
        config = self._topics.config(topic)
        return config is not None and config.order

    def _spans(self, request: Request) -> Frame:
        topic, group = request.fields["topic"], request.fields["group"]
        if self._topics.config(topic) is None:
            raise unknown(topic)
        offsets = self._progress.offsets(group).get(topic, {})
        spans = self._progress.span(topic, offsets, clock.wall_ms())
        return request.success(ConsumeTimeSpans(tuple(spans)).encode())
