"""Offset table: a body that names an offset for each of some queues."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from rmqclient.remoting.bodies.body import Body
from rmqclient.store import MessageQueue


@dataclass(frozen=True, slots=True)
class OffsetTable(Body):
    """The body of request 220 and the file of a broadcast member. [ResetOffsetBody, OffsetSerializeWrapper]"""

    offsets: Annotated[dict[MessageQueue, int], "offsetTable"] = field(default_factory=dict)
