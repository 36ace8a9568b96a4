"""Broker info: statistics of the broker, and cleaning up.

The keys are those of 4.9, and also those of 5.x where the spelling differs. RocketMQ's exporter needs all of them, so a
key without a meaning here has the value that an idle broker gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rmqclient.broker.administration.rates import Rates
from rmqclient.broker.request import Request
from rmqclient.broker.routes import ADMINISTRATOR, ANY, NOTHING, Need, Route, need_of_group, need_of_topic
from rmqclient.remoting.bodies import BrokerStats, KVTable
from rmqclient.remoting.codes import VERSION, RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import SCHEDULE_TOPIC, MessageStore
from rmqclient.store.errors import QueueError

VERSION_NAME = "V4_9_7"
"""The release that :data:`rmqclient.remoting.codes.VERSION` is."""


_NOTHING_WAITS = {
    **{f"{pool}ThreadPoolQueueSize": "0" for pool in ("send", "pull", "query")},
    **{f"{pool}ThreadPoolQueueHeadWaitTimeMills": "0" for pool in ("send", "pull", "query")},
    **{f"{pool}ThreadPoolQueueCapacity": "0" for pool in ("send", "pull", "query")},
    "EndTransactionQueueSize": "0",
}
"""Requests are handled as they arrive, so their queues are always empty."""

_NOT_COUNTED = {
    "getMissTps": "0.0 0.0 0.0",
    "getMessageEntireTimeMax": "0",
    "putMessageEntireTimeMax": "0",
    "putMessageDistributeTime": "null",  # the value of a 5.x broker
    "remainTransientStoreBufferNumbs": str(2**31 - 1),  # the value of a broker without such buffers
}


class BrokerInfo:
    """Answers what tools ask about the broker as a whole."""

    def __init__(self, store: MessageStore, rates: Rates, *, read_only: bool = False) -> None:
        self._store = store
        self._rates = rates
        self._is_read_only = read_only

    def routes(self) -> Iterable[Route]:
        """Declare requests about the broker. Those about the whole broker need no permission for a topic or group."""
        yield Route(RequestCode.CLEAN_UNUSED_TOPIC, _nothing_to_do, needs=ADMINISTRATOR, writes=True)
        yield Route(RequestCode.GET_BROKER_RUNTIME_INFO, self._tell, needs=NOTHING, writes=False, slow=True)
        yield Route(RequestCode.VIEW_BROKER_STATS_DATA, self._stats, needs=_of_stats, writes=False, slow=True)
        for code in (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.DELETE_EXPIRED_COMMITLOG):
            yield Route(code, self._clean, needs=ADMINISTRATOR, writes=True, slow=True)

    def _tell(self, request: Request) -> Frame:
        return request.success(KVTable({**self._of_server(), **self._of_messages(), **self._of_log()}).encode())

    def _of_server(self) -> dict[str, str]:
        return {
            "bootTimestamp": str(self._rates.began_ms),
            "brokerActive": "true",
            "brokerVersion": str(int(VERSION)),
            "brokerVersionDesc": VERSION_NAME,
            "runtime": _span(int(self._rates.age_s)),
            "startAcceptSendRequestTimeStamp": "0",
            **_NOTHING_WAITS,
            "pageCacheLockTimeMills": "0",
        }

    def _of_messages(self) -> dict[str, str]:
        stored, finished, size = self._rates.stored, self._rates.finished, self._rates.put_bytes()
        puts, takes, put_days, take_days = stored.total(), finished.total(), stored.mornings, finished.mornings
        put_tps, taken_tps = _shown(stored.recent()), _shown(finished.recent())
        return {
            "msgPutTotalYesterdayMorning": str(put_days[0]),
            "msgPutTotalTodayMorning": str(put_days[1]),
            "msgPutTotalTodayNow": str(puts),
            "msgGetTotalYesterdayMorning": str(take_days[0]),
            "msgGetTotalTodayMorning": str(take_days[1]),
            "msgGetTotalTodayNow": str(takes),
            "putMessageTimesTotal": str(puts),
            "putMessageSizeTotal": str(size),
            "putMessageAverageSize": str(round(size / puts, 2) if puts else 0.0),
            "putTps": put_tps,
            "getFoundTps": taken_tps,
            "getTotalTps": taken_tps,
            "getTransferedTps": taken_tps,
            "getTransferredTps": taken_tps,
            **_NOT_COUNTED,
        }

    def _of_log(self) -> dict[str, str]:
        store = self._store
        usage = store.disk.usage()
        ratio = f"{usage.used_percent / 100:.2f}"
        begin, end = store.state.min_offset, store.state.published_to
        total = usage.free_bytes / (1 - usage.used_percent / 100) if usage.used_percent < 100 else 0
        return {
            "commitLogMinOffset": str(begin),
            "commitLogMaxOffset": str(end),
            "commitLogDiskRatio": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": f"Total : {total / 2**30:.1f} GiB, Free : {usage.free_bytes / 2**30:.1f} GiB.",
            "dispatchBehindBytes": "0",  # an append writes the queue itself
            "dispatchMaxBuffer": "0",
            "earliestMessageTimeStamp": str(self._earliest_ms(begin, end)),
            "remainHowManyDataToFlush": f"{max(0, end - store.state.flushed_to)} B",
            **self._of_delays(),
        }

    def _of_delays(self) -> dict[str, str]:
        """Return for each delay level the offset of delivery and the end of its queue."""
        topics = self._store.topics
        queues = topics.queues(SCHEDULE_TOPIC) if SCHEDULE_TOPIC in topics else []
        offsets = {}
        for queue in queues:
            level, end = queue.queue_id + 1, topics.max_offset(queue)
            if end:
                offsets[f"scheduleMessageOffset_{level}"] = f"{self._store.schedule.next_offset(level)},{end}"
        return offsets

    def _earliest_ms(self, begin: int, end: int) -> int:
        try:
            return int(self._store.messages.read(begin).store_timestamp) if end > begin else -1
        except QueueError:
            return -1

    def _stats(self, request: Request) -> Frame:
        name, key = request.fields["statsName"], request.fields["statsKey"]
        found: BrokerStats | None = None
        if name == "TOPIC_PUT_NUMS":
            found = self._rates.stored.stats(self._rates.slots_of_topic(key))
        elif name == "GROUP_GET_NUMS":
            topic, _, group = key.partition("@")
            found = self._rates.finished.stats(self._rates.slots_of_group(group, topic))
        elif name == "BROKER_PUT_NUMS":
            found = self._rates.stored.stats()
        elif name == "BROKER_GET_NUMS":
            found = self._rates.finished.stats()
        if found is None:
            return request.failure(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        return request.success(found.encode())

    def _clean(self, request: Request) -> Frame:
        """Remove expired files now, as the housekeeper does on its schedule."""
        if self._is_read_only:
            return request.failure(ResponseCode.NO_PERMISSION, "this server is for reading only")
        while self._store.retention.clean(requested=True):
            pass
        return request.success()


def _of_stats(request: Request) -> Iterator[Need]:
    """Yield what the rates of a topic or a group need; those of the whole broker need nothing."""
    name, key = request.fields["statsName"], request.fields["statsKey"]
    if name == "TOPIC_PUT_NUMS":
        yield need_of_topic(key, ANY)
    if name == "GROUP_GET_NUMS":
        yield need_of_group(key.partition("@")[2])


def _nothing_to_do(request: Request) -> Frame:
    """Accept the cleaning of unused topics: retention removes what a deleted topic leaves."""
    return request.success()


def _span(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _shown(per_second: list[float]) -> str:
    return " ".join(map(str, per_second))
