"""A scripted cluster whose brokers keep messages in memory: what is sent can be pulled, sent back and decided upon.

::

    with keeping_cluster(topics={"orders": 2}) as kept:
        App(f"rocketmq://{kept.cluster.address}")
        kept.put("orders", b"...", tags="paid")
        assert kept.bodies("orders") == [b"..."]

Brokers do what real ones do, but for time: a delayed message is there at once, and so is the retry of one that was sent
back. Filters other than tags, slaves, retention and checks of transactions are left out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from struct import unpack_from
from typing import Any, Final

from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields, response
from tests.support.cluster.scripted_cluster import Script, ScriptedCluster, scripted_cluster
from tests.support.cluster.standard_answers import RETRY
from tests.support.oracle.reference import ReferenceRecord, encode, format_properties, offset_message_id

DEAD: Final = "%DLQ%"
HALF: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
MAY_WAIT: Final = 2  # bit of a pull's sysFlag
IS_HALF: Final = 4  # bit of a message's sysFlag
COMMIT: Final = 8
RETRIES: Final = 16

Queue = tuple[str, str, int]


@dataclass
class HeldPull:
    """A pull that waits for a message, and the timer that ends the waiting."""

    request: Frame
    timer: threading.Timer


@contextmanager
def keeping_cluster(
    script: Script | None = None, *, topics: Mapping[str, int] | None = None, brokers: Sequence[str] = ("broker-a",)
) -> Iterator[KeepingCluster]:
    """Run such a cluster for the length of a block. ``script`` goes before what this cluster does by itself."""
    kept = KeepingCluster()
    with scripted_cluster(
        {**kept.script(), **(script or {})}, topics=topics, brokers=brokers, notifies=True
    ) as cluster:
        kept.cluster = cluster
        try:
            yield kept
        finally:
            kept.close()


class KeepingCluster:
    """The messages of all brokers, and the answers about them."""

    cluster: ScriptedCluster

    def __init__(self) -> None:
        self.queues: dict[Queue, list[ReferenceRecord]] = {}
        """The messages of each (broker, topic, queue id)."""
        self._logs: dict[tuple[str, int], ReferenceRecord] = {}  # by broker and offset in its commit log
        self._ends: dict[str, int] = {}  # of the commit logs
        self._halves: dict[tuple[int, int], tuple[str, int]] = {}  # topic and queue id by port and commit log offset
        self._held: dict[Queue, list[HeldPull]] = {}
        self._lock = threading.RLock()
        self._clock = count(1_700_000_000_000)

    def put(
        self, topic: str, body: bytes, *, broker: str = "", queue_id: int = 0, **properties: str
    ) -> ReferenceRecord:
        """Store a message as if somebody had sent it; properties have RocketMQ's names, ``TAGS`` for the tag."""
        text = format_properties(properties)
        return self._store(broker or next(iter(self.cluster.brokers)), topic, queue_id, body, text)

    def messages(self, topic: str) -> list[ReferenceRecord]:
        """Return what all queues of a topic have, queue after queue."""
        with self._lock:
            return [record for queue in sorted(self.queues) if queue[1] == topic for record in self.queues[queue]]

    def bodies(self, topic: str) -> list[bytes]:
        """Return the bodies of a topic's messages."""
        return [record.body for record in self.messages(topic)]

    def committed(self, group: str, topic: str) -> dict[tuple[str, int], int]:
        """Return the committed offset of each (broker, queue id) that has one."""
        offsets = dict(self.cluster.state.offsets)
        return {
            (broker, at): offset for (of, name, broker, at), offset in offsets.items() if (of, name) == (group, topic)
        }

    def script(self) -> dict[RequestCode, Any]:
        """Return the answers."""
        return {
            RequestCode.SEND_MESSAGE: self._send,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send_batch,
            RequestCode.END_TRANSACTION: self._decide,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.LITE_PULL_MESSAGE: self._pull,
            RequestCode.GET_MIN_OFFSET: lambda asked: response(asked, offset=0),
            RequestCode.GET_MAX_OFFSET: lambda asked: response(asked, offset=len(self._queue_of(asked))),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.QUERY_MESSAGE: self._query,
        }

    def close(self) -> None:
        """End the waiting of held pulls."""
        with self._lock:
            for held in self._held.values():
                for pull in held:
                    pull.timer.cancel()

    def _store(
        self, broker: str, topic: str, queue_id: int, body: bytes, properties: bytes, **more: Any
    ) -> ReferenceRecord:
        with self._lock:
            queue = self.queues.setdefault((broker, topic, queue_id), [])
            at, now = self._ends.get(broker, 0), next(self._clock)
            record = ReferenceRecord(
                topic=topic,
                body=body,
                properties=properties,
                queue_id=queue_id,
                queue_offset=len(queue),
                commit_log_offset=at,
                store_timestamp=now,
                store_port=int(self.cluster.brokers[broker].rpartition(":")[2]),
                **{"born_timestamp": now, **more},
            )
            self._logs[broker, at] = record
            self._ends[broker] = at + len(encode(record, crc_property=False))
            queue.append(record)
            held = self._held.pop((broker, topic, queue_id), [])
        for pull in held:
            self._answer_held(pull)
        return record

    def _send(self, asked: Frame) -> Frame:
        fields = request_fields(asked)
        is_half = fields["sysFlag"] & 0xC == IS_HALF
        record = self._store(
            self.cluster.broker_of(asked),
            HALF if is_half else fields["topic"],
            0 if is_half else max(fields["queueId"], 0),
            asked.body,
            fields.get("properties", "").encode(),
            sys_flag=fields["sysFlag"] & ~0xC,
            flag=fields["flag"],
            born_timestamp=fields["bornTimestamp"],
            reconsume_times=fields.get("reconsumeTimes", 0),
        )
        if is_half:
            self._halves[record.store_port, record.commit_log_offset] = fields["topic"], max(fields["queueId"], 0)
        return self._stored(asked, fields["queueId"], [record])

    def _send_batch(self, asked: Frame) -> Frame:
        fields, broker = request_fields(asked), self.cluster.broker_of(asked)
        queue_id = max(fields["queueId"], 0)
        records = [
            self._store(broker, fields["topic"], queue_id, body, properties, born_timestamp=fields["bornTimestamp"])
            for body, properties in messages_of(asked.body)
        ]
        return self._stored(asked, queue_id, records)

    def _stored(self, asked: Frame, queue_id: int, records: list[ReferenceRecord]) -> Frame:
        ids = [offset_message_id(one.store_host, one.store_port, one.commit_log_offset) for one in records]
        offset = records[0].queue_offset
        more: dict[str, Any] = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        return response(asked, msgId=",".join(ids), queueId=queue_id, queueOffset=offset, **more)

    def _decide(self, asked: Frame) -> Frame:
        fields, broker = request_fields(asked), self.cluster.broker_of(asked)
        half = self._logs[broker, fields["commitLogOffset"]]
        topic, queue_id = self._halves.pop((half.store_port, half.commit_log_offset))
        if fields["commitOrRollback"] == COMMIT:
            self._store(broker, topic, queue_id, half.body, half.properties, sys_flag=half.sys_flag, flag=half.flag)
        return response(asked)

    def _send_back(self, asked: Frame) -> Frame:
        fields, broker = request_fields(asked), self.cluster.broker_of(asked)
        record = self._logs.get((broker, fields["offset"]))
        if record is None:
            remark = f"look message by offset failed, {fields['offset']}"
            return response(asked, ResponseCode.SYSTEM_ERROR, remark=remark)
        group, message_id = fields["group"], offset_message_id(record.store_host, record.store_port, fields["offset"])
        added = {"RETRY_TOPIC": record.topic, "ORIGIN_MESSAGE_ID": message_id}
        is_dead = record.reconsume_times >= fields.get("maxReconsumeTimes", RETRIES) or fields["delayLevel"] < 0
        self._store(
            broker,
            f"{DEAD if is_dead else RETRY}{group}",
            0,
            record.body,
            format_properties({**added, **record.property_map}),
            reconsume_times=record.reconsume_times + 1,
            born_timestamp=record.born_timestamp,
            sys_flag=record.sys_flag,
            flag=record.flag,
        )
        return response(asked)

    def _pull(self, asked: Frame) -> Frame | None:
        with self._lock:
            answer = self._pulled(asked)
            fields = request_fields(asked)
            if answer.code != ResponseCode.PULL_NOT_FOUND or not fields["sysFlag"] & MAY_WAIT:
                return answer
            timer = threading.Timer(fields["suspendTimeoutMillis"] / 1000, self._give_up, (asked,))
            timer.daemon = True
            timer.start()
            self._held.setdefault(self._name_of(asked), []).append(HeldPull(asked, timer))
            return None

    def _answer_held(self, pull: HeldPull) -> None:
        """Answer a pull for which a message came."""
        pull.timer.cancel()
        with self._lock:
            answer = self._pulled(pull.request)
        self.cluster.answer_to(pull.request, answer)

    def _give_up(self, asked: Frame) -> None:
        with self._lock:
            held = self._held.get(self._name_of(asked), [])
            waiting = [pull for pull in held if pull.request is asked]
            for pull in waiting:
                held.remove(pull)
            answer = self._pulled(asked)
        if waiting:
            self.cluster.answer_to(asked, answer)

    def _pulled(self, asked: Frame) -> Frame:
        """Return what a broker answers that does not wait. [PullMessageProcessor, DefaultMessageStore]"""
        fields, records = request_fields(asked), self._queue_of(asked)
        offset, end = fields["queueOffset"], len(records)
        if not 0 <= offset <= end:
            return pulled(
                asked, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", end if offset > end else 0, end
            )
        if offset == end:
            return pulled(asked, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", offset, end)
        looked_at = records[offset : offset + fields["maxMsgNums"]]
        wanted = [tag.strip() for tag in fields.get("subscription", "*").split("||")]
        takes_all = wanted in (["*"], [""]) or fields.get("expressionType", "TAG") != "TAG"
        taken = [one for one in looked_at if takes_all or one.property_map.get("TAGS") in wanted]
        following = offset + len(looked_at)
        if not taken:
            return pulled(asked, ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", following, end)
        body = b"".join(encode(one, crc_property=False) for one in taken)
        return pulled(asked, ResponseCode.SUCCESS, "FOUND", following, end, body)

    def _search(self, asked: Frame) -> Frame:
        timestamp, records = request_fields(asked)["timestamp"], self._queue_of(asked)
        return response(asked, offset=sum(one.store_timestamp < timestamp for one in records))

    def _view(self, asked: Frame) -> Frame:
        offset = request_fields(asked)["offset"]
        record = self._logs.get((self.cluster.broker_of(asked), offset))
        if record is None:
            return response(asked, ResponseCode.SYSTEM_ERROR, remark=f"can not find message by the offset, {offset}")
        return response(asked, body=encode(record, crc_property=False))

    def _query(self, asked: Frame) -> Frame:
        fields, broker = request_fields(asked), self.cluster.broker_of(asked)
        with self._lock:
            found = [
                record
                for (of, _), record in self._logs.items()
                if (of, record.topic) == (broker, fields["topic"]) and fields["key"] in keys_of(record)
            ]
        if not found:
            return response(
                asked, ResponseCode.QUERY_NOT_FOUND, remark="can not find message, maybe time range not correct"
            )
        body = b"".join(encode(one, crc_property=False) for one in found[-fields["maxNum"] :])
        return response(asked, body=body, indexLastUpdateTimestamp=0, indexLastUpdatePhyoffset=0)

    def _queue_of(self, asked: Frame) -> list[ReferenceRecord]:
        with self._lock:
            return list(self.queues.get(self._name_of(asked), ()))

    def _name_of(self, asked: Frame) -> Queue:
        fields = request_fields(asked)
        return self.cluster.broker_of(asked), fields["topic"], fields["queueId"]


def pulled(asked: Frame, code: int, remark: str, following: int, end: int, body: bytes = b"") -> Frame:
    """Return the answer to a pull."""
    limits: dict[str, Any] = {"minOffset": 0, "maxOffset": end}
    return response(asked, code, body, remark, suggestWhichBrokerId=0, nextBeginOffset=following, **limits)


def keys_of(record: ReferenceRecord) -> set[str]:
    """Return the keys under which a message is found, its unique one included."""
    properties = record.property_map
    return {*properties.get("KEYS", "").split(" "), properties.get("UNIQ_KEY", "")}


def messages_of(batch: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Return body and properties of each message in the body of a batch. [MessageDecoder.encodeMessage]"""
    at = 0
    while at < len(batch):
        total, _, _, _, length = unpack_from(">iiiii", batch, at)
        body = batch[at + 20 : at + 20 + length]
        yield body, batch[at + 22 + length : at + total]
        at += total
