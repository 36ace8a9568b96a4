"""Offsets of groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Self

from rmqclient.remoting.bodies import fastjson
from rmqclient.remoting.bodies.body import Body
from rmqclient.remoting.bodies.settings import DataVersion
from rmqclient.store import MessageQueue


@dataclass(frozen=True, slots=True)
class _QueueOffset(Body):
    """A queue and an offset, in the form of the C++ client. [MessageQueueForC]"""

    topic: str
    broker_name: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class ResetOffset(Body):
    """New offsets of a group's queues: the body of request 220, and the answer to 222. [ResetOffsetBody]

    Go's client reads only fastjson's form of it, the C++ client only a list. Both forms are read here.
    """

    offsets: Annotated[dict[MessageQueue, int], "offsetTable"] = field(default_factory=dict)

    @classmethod
    def of(cls, value: object) -> Self:
        """Read either form. Raises BodyError."""
        table = value.get("offsetTable") if isinstance(value, dict) else None
        if isinstance(table, list):
            entries = map(_QueueOffset.of, table)
            return cls({MessageQueue(each.topic, each.queue_id, each.broker_name): each.offset for each in entries})
        return super(ResetOffset, cls).of(value)

    def encode(self, *, as_fastjson: bool = True) -> bytes:
        """Return fastjson's form, which every client but C++ reads."""
        return super(ResetOffset, self).encode(as_fastjson=as_fastjson)

    def encode_list(self) -> bytes:
        """Return the form for the C++ client. [ResetOffsetBodyForC]"""
        entries = [
            _QueueOffset(queue.topic, queue.broker_name, queue.queue_id, at) for queue, at in self.offsets.items()
        ]
        return fastjson.write({"offsetTable": [entry.to_json() for entry in entries]})


@dataclass(frozen=True, slots=True)
class ConsumerStatus(Body):
    """Offsets of a member (221), and of each member by client id (223). [GetConsumerStatusBody]"""

    offsets: Annotated[dict[MessageQueue, int], "messageQueueTable"] = field(default_factory=dict)
    members: Annotated[dict[str, dict[MessageQueue, int]], "consumerTable"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OffsetTable(Body):
    """Offsets of all groups of a broker: the answer to request 43. [ConsumerOffsetSerializeWrapper]"""

    offsets: Annotated[dict[str, dict[int, int]], "offsetTable"] = field(default_factory=dict)
    """By ``topic@group``, then by queue id."""
    version: Annotated[DataVersion | None, "dataVersion"] = None
    topics_of_groups: Annotated[dict[str, tuple[str, ...]] | None, "groupTopicMap"] = None
    """Of 5.x brokers."""

    def of_group(self, group: str) -> dict[str, dict[int, int]]:
        """Return the offsets of one group by topic, then by queue id."""
        pairs = [(name.rpartition("@"), offsets) for name, offsets in self.offsets.items()]
        return {topic: offsets for (topic, _, owner), offsets in pairs if owner == group}


@dataclass(frozen=True, slots=True)
class DelayOffsets(Body):
    """Offsets of delivery by delay level: the answer to request 45. [DelayOffsetSerializeWrapper]"""

    offsets: Annotated[dict[int, int], "offsetTable"] = field(default_factory=dict)
    version: Annotated[DataVersion | None, "dataVersion"] = None


@dataclass(frozen=True, slots=True)
class CorrectionOffsets(Body):
    """The smallest offset of some groups by queue id: the answer to 308. [QueryCorrectionOffsetBody]"""

    offsets: Annotated[dict[int, int], "correctionOffsets"] = field(default_factory=dict)
