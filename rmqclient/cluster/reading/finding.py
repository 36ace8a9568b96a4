"""Finding: messages by their keys and ids, from the indexes of all brokers.

Each broker has an index of its own messages, some milliseconds behind its log. An index has hashes of keys, so a broker
may return messages with another key, which are dropped here. [QueryMessageProcessor, IndexService]
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.reading.topics import Topics, runtime_info
from rmqclient.errors import StoreBusy, UnknownTopic
from rmqclient.message import ReceivedMessage
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.table import request
from rmqclient.store.log.query import END_OF_TIME
from rmqclient.store.texts import is_utf8
from rmqclient.store.wire import decode_records, parse_offset_id

_AT_ONCE: Final = 64  # maxMsgsNumBatch
_SETTLED_WITHIN_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.01


class Finding:
    """Finds messages of one cluster. Safe for threads."""

    def __init__(self, client: ClusterClient, topics: Topics) -> None:
        self._client = client
        self._topics = topics

    def by_key(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> list[ReceivedMessage]:
        """Return up to ``limit`` messages of a topic with a key or unique key, the newest first; at most 64.

        Empty for a missing topic. Raises as a call to any of its brokers.
        """
        if not is_utf8(key):  # no message can have it
            return []
        try:
            brokers = self._client.routes.of(topic).brokers
        except UnknownTopic:
            return []
        found: list[ReceivedMessage] = []
        for broker in brokers:
            address = self._client.brokers.read_address(broker.name)
            asked = request(
                RequestCode.QUERY_MESSAGE,
                topic=self._client.url.wrap(topic),
                key=key,
                maxNum=min(limit, _AT_ONCE),
                beginTimestamp=begin_ms,
                endTimestamp=end_ms,
            )
            answer = self._client.call(address, asked, also=(ResponseCode.QUERY_NOT_FOUND,))
            if answer.code == ResponseCode.SUCCESS:
                found += decode_records(answer.body, broker_name=broker.name)
        has_key = [each for each in found if key in each.keys or key == each.message_id]
        return sorted(has_key, key=lambda message: message.store_timestamp, reverse=True)[:limit]

    def topics_with(self, key: str, topics: Sequence[str]) -> list[str]:  # noqa: ARG002 - no request asks of many topics
        """Return the topics."""
        return list(topics)

    def by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage | None:
        """Return a message by its unique id or its offset message id; None if no message has the id."""
        found = self._by_offset_id(message_id)
        if found is not None and topic in (None, found.topic):
            return found
        for name in self._topics.names() if topic is None else [topic]:
            for message in self.by_key(name, message_id, 0, END_OF_TIME, _AT_ONCE):
                if message.message_id == message_id:
                    return message
        return None

    def settle(self) -> None:
        """Wait until the index of every master has all messages that its log has now.

        Raises StoreBusy after 5 s.
        """
        deadline = time.monotonic() + _SETTLED_WITHIN_S
        for name, address in self._client.brokers.masters().items():
            while int(runtime_info(self._client, address).get("dispatchBehindBytes", "0")) > 0:
                if time.monotonic() > deadline:
                    raise StoreBusy(
                        f"the index of broker {name!r} is behind its log for {_SETTLED_WITHIN_S:.0f} s: try it again"
                    )
                time.sleep(_LOOK_EVERY_S)

    def begin_ms(self) -> int | None:
        """Return the time since which every master has all messages; None if none were removed."""
        begins = []
        for address in self._client.brokers.masters().values():
            info = runtime_info(self._client, address)
            if int(info.get("commitLogMinOffset", "0")) > 0:
                begins.append(int(info.get("earliestMessageTimeStamp", "-1")))
        return max((begin for begin in begins if begin >= 0), default=None)

    def _by_offset_id(self, message_id: str) -> ReceivedMessage | None:
        """Return the message with an offset message id; None if the id's broker is not of this cluster."""
        try:
            place = parse_offset_id(message_id)
        except ValueError:
            return None
        for name, broker in self._client.brokers.cluster().brokers.items():
            if place.address in broker.addresses.values():
                asked = request(RequestCode.VIEW_MESSAGE_BY_ID, offset=place.commit_log_offset)
                answer = self._client.call(place.address, asked, also=(ResponseCode.SYSTEM_ERROR,))
                if answer.code == ResponseCode.SUCCESS:
                    return decode_records(answer.body, broker_name=name)[0]
        return None
