"""Registration: a broker's topics, for a name server, in request 103.

The body is JSON, or with ``compressed=true`` in the header a zlib stream of this (RegisterBrokerBody.encode):

=======  ==========================================================================================================
size     field
=======  ==========================================================================================================
4, n     size n and JSON of the data version
4        number of topics; then for each:
4, n     size n and text: name, read queues, write queues, perm, filter type; 5.x: order, attributes in JSON
4, n     size n and JSON of the filter servers, an array of strings
...      of 5.x brokers: queues that move between brokers; ignored here
=======  ==========================================================================================================

Words are separated by one space. Numbers are big-endian.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Annotated, Self

from rmqclient.remoting.bodies import fastjson
from rmqclient.remoting.bodies.body import Body
from rmqclient.remoting.bodies.settings import DataVersion, TopicConfig, TopicTable
from rmqclient.remoting.errors import BodyError

MOST_OPENED_BYTES = 64 << 20
"""Bytes of a decompressed registration, at most."""


@dataclass(frozen=True, slots=True)
class Registration(Body):
    """The body of request 103. The table may hold only some of a broker's topics. [RegisterBrokerBody]"""

    table: Annotated[TopicTable, "topicConfigSerializeWrapper"]
    filter_servers: Annotated[tuple[str, ...], "filterServerList"] = ()

    @classmethod
    def decode_compressed(cls, body: bytes) -> Self:
        """Read the compressed form. Raises BodyError, also for more than ``MOST_OPENED_BYTES`` decompressed."""
        try:
            opener = zlib.decompressobj()
            content = opener.decompress(body, MOST_OPENED_BYTES)
        except zlib.error as error:
            raise BodyError(f"a registration of {len(body)} bytes is not a zlib stream: {error}") from error
        if not opener.eof:
            raise BodyError(f"a registration of {len(body)} bytes ends too soon, or opens to over {MOST_OPENED_BYTES}")
        parts = _Parts(content)
        version = DataVersion.decode(parts.next())
        topics = [_topic_of(parts.next()) for _ in range(parts.number())]
        servers = fastjson.read(parts.next())
        table = {topic.name: topic for topic in topics}
        return cls(TopicTable(version, table), tuple(map(str, servers if isinstance(servers, list) else ())))

    def encode_compressed(self) -> bytes:
        """Return the compressed form of a 4.9 broker, without order and attributes of topics."""
        topics = [_words_of(topic).encode() for topic in self.table.topics.values()]
        sized = [_sized(self.table.version.encode()), struct.pack(">i", len(topics)), *map(_sized, topics)]
        return zlib.compress(b"".join((*sized, _sized(fastjson.write(self.filter_servers)))), 9)


class _Parts:
    """Reads the parts of a registration, one after another."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def number(self) -> int:
        if self._at + 4 > len(self._content):
            raise BodyError(f"a registration ends too soon, at byte {self._at}")
        (number,) = struct.unpack_from(">i", self._content, self._at)
        self._at += 4
        return int(number)

    def next(self) -> bytes:
        size, at = self.number(), self._at
        if not 0 <= size <= len(self._content) - at:
            raise BodyError(f"a registration says {size} bytes at byte {at}, and has {len(self._content) - at}")
        self._at += size
        return self._content[at : self._at]


def _topic_of(text: bytes) -> TopicConfig:
    words = text.decode(errors="replace").split(" ", 6)
    try:
        name, read_queues, write_queues, perm, filter_type = words[:5]
        order = len(words) > 5 and words[5] == "true"
        attributes = (
            TopicConfig.of({"topicName": name, "attributes": json.loads(words[6])}).attributes if words[6:] else None
        )
        return TopicConfig(name, int(read_queues), int(write_queues), int(perm), filter_type, 0, order, attributes)
    except ValueError:
        raise BodyError(f"a registration has a topic of five to seven words, not {text[:80]!r}") from None


def _words_of(topic: TopicConfig) -> str:
    return f"{topic.name} {topic.read_queues} {topic.write_queues} {topic.perm} {topic.filter_type}"


def _sized(part: bytes) -> bytes:
    return struct.pack(">i", len(part)) + part
