"""Running info: answers to requests of brokers about this client's consumers.

====  ================================  ===================================================================
code  request                           answer
====  ================================  ===================================================================
220   RESET_CONSUMER_CLIENT_OFFSET      no answer: the members move to the offsets in the body
221   GET_CONSUMER_STATUS_FROM_CLIENT   the committed offset of each queue
307   GET_CONSUMER_RUNNING_INFO         queues, their counts and states, subscriptions, settings
309   CONSUME_MESSAGE_DIRECTLY          a refusal: handlers get messages from queues only
====  ================================  ===================================================================

Brokers forward these requests from administrators (``mqadmin consumerStatus``, ``resetOffsetByTime``). Members of this
library ask each other for their queues by request 307, for the allocation ``sticky``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.groups.grant import ClusterGrant
from rmqclient.cluster.groups.membership import ClusterMembership
from rmqclient.cluster.groups.subscriptions import Subscriptions
from rmqclient.errors import QueueError
from rmqclient.remoting.bodies import ConsumerStatus, ProcessQueueInfo, ResetOffset, RunningInfo, Subscription
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request, request_fields, response
from rmqclient.store import MessageQueue
from rmqclient.store.threads.logs import Log

_STARTED_MS = time.time_ns() // 1_000_000
_TIMEOUT_S = 5.0
_NOT_DIRECTLY = (
    "a member in Python handles a message only when it comes out of its queue: send the message again, or hand a dead "
    "letter back with `rmq dlq replay`"
)

_log = Log(__name__)


def answer_brokers(
    client: ClusterClient, subscriptions: Subscriptions, memberships_of: Callable[[str], Sequence[ClusterMembership]]
) -> None:
    """Register the handlers; ``memberships_of(group)`` returns this client's memberships in a group."""

    def reset(asked: Frame, _address: str) -> None:
        fields = request_fields(asked)
        table = ResetOffset.decode(asked.body).offsets
        _log.warning("group %s is moved in %s, as the broker asks: %s", fields["group"], fields["topic"], table)
        offsets = {queue._replace(topic=client.url.unwrap(queue.topic)): offset for queue, offset in table.items()}
        for membership in memberships_of(fields["group"]):
            membership.move(offsets)

    def status(asked: Frame, _address: str) -> Frame:
        fields = request_fields(asked)
        offsets = {
            queue: grant.committed_offset
            for membership in memberships_of(fields["group"])
            for queue, grant in list(membership.grants.items())
            if client.url.wrap(queue.topic) == fields["topic"]
        }
        return response(asked, body=ConsumerStatus(offsets).encode())

    def running(asked: Frame, _address: str) -> Frame:
        group = request_fields(asked)["consumerGroup"]
        return response(asked, body=running_info(client, subscriptions.of(group), memberships_of(group)).encode())

    def directly(asked: Frame, _address: str) -> Frame:
        return response(asked, ResponseCode.SYSTEM_ERROR, remark=_NOT_DIRECTLY)

    client.requests.on(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, reset)
    client.requests.on(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, status)
    client.requests.on(RequestCode.GET_CONSUMER_RUNNING_INFO, running)
    client.requests.on(RequestCode.CONSUME_MESSAGE_DIRECTLY, directly)


def running_info(
    client: ClusterClient, subscriptions: Sequence[Subscription], memberships: Sequence[ClusterMembership]
) -> RunningInfo:
    """Return the state of the members, with the properties that Java's tools read."""
    properties = {
        "PROP_CLIENT_VERSION": "V4_9_7",
        "PROP_CONSUMER_START_TIMESTAMP": str(_STARTED_MS),
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_CONSUMEORDERLY": str(any(each.is_ordered for each in memberships)).lower(),
        "PROP_NAMESERVER_ADDR": ";".join(client.url.name_servers),
        "PROP_THREADPOOL_CORE_SIZE": "0",
    }
    grants = [grant for each in memberships for grant in list(each.grants.values())]
    queues = {grant.queue: _process_queue(grant) for grant in grants}
    return RunningInfo(properties, tuple(subscriptions), queues)


def _process_queue(grant: ClusterGrant) -> ProcessQueueInfo:
    now_ms = time.time_ns() // 1_000_000
    pulled_at = 0.0 if grant.pulling is None else grant.pulling.answered_at
    pulled_ms = now_ms - int((time.monotonic() - pulled_at) * 1000)
    return ProcessQueueInfo(
        commit_offset=grant.committed_offset,
        cached_min_offset=grant.committed_offset,
        cached_max_offset=grant.next_offset,
        cached_count=grant.messages.unfinished + grant.messages.ahead,
        locked=not grant.lease_is_over,
        last_lock_timestamp=now_ms,
        dropped=not grant.valid,
        last_pull_timestamp=pulled_ms,
        last_consume_timestamp=now_ms,
    )


def queues_of(client: ClusterClient, group: str, topic: str, member: str) -> list[MessageQueue]:
    """Ask a member, through a broker of a topic, for its queues of the topic; empty if it does not answer."""
    wanted = request(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup=group, clientId=member, jstackEnable=False)
    try:
        broker = client.routes.read_queues(topic)[0].broker_name
        answer = client.call(client.brokers.read_address(broker), wanted, _TIMEOUT_S)
        queues = RunningInfo.decode(answer.body).queues
    except (QueueError, IndexError) as error:
        _log.debug("group %s: member %s does not tell its queues: %s", group, member, error)
        return []
    return [queue for queue in queues if queue.topic == topic]
