"""A scripted cluster whose brokers serve the records of a store, as a broker answers pulls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields, response
from rmqclient.spark.scan.read_options import ReadOptions, parse
from rmqclient.store.inspect.view import LocalView
from tests.support.cluster.scripted_cluster import ScriptedCluster, scripted_cluster
from tests.support.oracle import reference

Queue = tuple[str, int]
TOPICS = {"orders": 1, "payments": 2}


@dataclass
class Served:
    """What the brokers have: the records of each queue by queue offset, with the tag of each."""

    records: dict[Queue, dict[int, tuple[str, bytes]]]
    cluster: ScriptedCluster = field(init=False)
    most: int = 32
    """Messages in one answer."""
    ends: dict[Queue, int] = field(init=False)

    def __post_init__(self) -> None:
        self.ends = {queue: max(records) + 1 for queue, records in self.records.items()}

    @property
    def url(self) -> str:
        """The URL of the cluster."""
        return f"rocketmq://{self.cluster.address}"

    def options(self, streaming: bool = False, /, **given: object) -> ReadOptions:
        """Return the options of a read of the cluster, of both topics unless some are named."""
        usual = {} if {"assign", "subscribePattern", "subscribe"} & set(given) else {"subscribe": "orders,payments"}
        texts = {name: str(value) for name, value in given.items()}
        return parse({"path": self.url, **usual, **texts}, streaming=streaming)

    def oldest(self, queue: Queue) -> int:
        """Return the first offset that is there."""
        return min(self.records.get(queue, ()), default=self.ends.get(queue, 0))

    def limit(self, request: Frame) -> Frame:
        """Answer GET_MIN_OFFSET or GET_MAX_OFFSET."""
        queue = queue_of(request)
        is_oldest = request.code == RequestCode.GET_MIN_OFFSET
        return response(request, offset=self.oldest(queue) if is_oldest else self.ends.get(queue, 0))

    def pull(self, request: Frame) -> Frame:
        """Answer PULL_MESSAGE as a broker does that waits for nothing. [PullMessageProcessor, DefaultMessageStore]"""
        fields, queue = request_fields(request), queue_of(request)
        offset, oldest, end = fields["queueOffset"], self.oldest(queue), self.ends.get(queue, 0)
        if not oldest <= offset <= end:
            following = oldest if offset < oldest else end
            return self._answer(request, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", following)
        if offset == end:
            return self._answer(request, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", offset)
        wanted = {tag.strip() for tag in fields["subscription"].split("||")}
        taken: list[bytes] = []
        following = offset
        while following < end and len(taken) < min(self.most, fields["maxMsgNums"]):
            tag, record = self.records[queue].get(following, ("", b""))
            if record and (wanted == {"*"} or tag in wanted):
                taken.append(record)
            following += 1
            if not record and not taken:
                break
        if not taken:
            status = "NO_MATCHED_MESSAGE" if wanted != {"*"} else "MESSAGE_WAS_REMOVING"
            return self._answer(request, ResponseCode.PULL_RETRY_IMMEDIATELY, status, following)
        return self._answer(request, ResponseCode.SUCCESS, "FOUND", following, b"".join(taken))

    def topic_list(self, request: Frame) -> Frame:
        """Answer GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
        names = [*TOPICS, "TBW102", "broker-a", "DefaultCluster", "DefaultCluster_REPLY_TOPIC", "%RETRY%g"]
        return response(request, body=orjson.dumps({"topicList": names}))

    def _answer(self, request: Frame, code: int, remark: str, following: int, body: bytes = b"") -> Frame:
        queue = queue_of(request)
        limits: dict[str, Any] = {"minOffset": self.oldest(queue), "maxOffset": self.ends.get(queue, 0)}
        return response(request, code, body, remark, suggestWhichBrokerId=0, nextBeginOffset=following, **limits)


def queue_of(request: Frame) -> Queue:
    """Return the queue that a request is about."""
    fields = request_fields(request)
    return fields["topic"], fields["queueId"]


@contextmanager
def served(root: Path, brokers: Sequence[str] = ("broker-a",)) -> Iterator[Served]:
    """Serve the records of a store for the length of a block; each broker has all of them."""
    view = LocalView(root)
    records: dict[Queue, dict[int, tuple[str, bytes]]] = {}
    for _, record in reference.read_commit_log(root):
        part = view.log(record.commit_log_offset, record.size)
        at = record.commit_log_offset - part.base
        content = bytes(memoryview(part.content)[at : at + record.size])
        tag = record.property_map.get("TAGS", "")
        records.setdefault((record.topic, record.queue_id), {})[record.queue_offset] = tag, content
    serving = Served(records)
    script = {
        RequestCode.PULL_MESSAGE: serving.pull,
        RequestCode.GET_MIN_OFFSET: serving.limit,
        RequestCode.GET_MAX_OFFSET: serving.limit,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: serving.topic_list,
    }
    with scripted_cluster(script, topics=TOPICS, brokers=brokers) as cluster:
        serving.cluster = cluster
        yield serving
