"""Scenario: commands of ``mqadmin`` in an order in which an operator could give them, and what each printed.

Between two of them a consumer of this library, connected over the network, joins a group and takes all messages.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rmqclient import App, Producer, ReceivedMessage
from rmqclient.consuming.push_consumer import PushConsumer
from tests.interop.rocketmq import BROKER_5_3_3
from tests.interop.tools.tools import Tools

TOPIC = "ToolsTopic"
GROUP = "tools_group"
PRODUCERS = "tools_producers"
OTHER_GROUP = "tools_other_group"
MESSAGES = 4
"""One for each queue: a real broker moves a group only if it has an offset in every queue."""

_MAKING = (
    "clusterList",
    "clusterList -m",
    f"updateTopic -c DefaultCluster -t {TOPIC} -r 4 -w 4",
    f"updateTopic -b BROKER -t {TOPIC}2 -r 2 -w 2",
    f"topicRoute -t {TOPIC}",
    f"topicStatus -t {TOPIC}",
    f"topicClusterList -t {TOPIC}",
    f"allocateMQ -t {TOPIC} -i 10.0.0.1,10.0.0.2",
    f"updateSubGroup -c DefaultCluster -g {GROUP} -r 3",
    f"getConsumerConfig -g {GROUP}",
    *(
        f"sendMessage -t {TOPIC} -p body-{number} -k key-{number} -c TagA -b broker-a -i {number}"
        for number in range(MESSAGES)
    ),
    f"topicStatus -t {TOPIC}",
    f"queryMsgByKey -t {TOPIC} -k key-1",
    f"queryMsgByOffset -t {TOPIC} -b broker-a -i 1 -o 0",
    f"queryMsgByUniqueKey -t {TOPIC} -i UNIQUE",
    "queryMsgById -i OFFSETID",
    f"queryCq -t {TOPIC} -q 0 -i 0 -c 1 -b BROKER",
    f"printMsg -t {TOPIC} -d true",
    f"printMsgByQueue -t {TOPIC} -a broker-a -i 0 -p true -d true",
    f"consumeMessage -t {TOPIC} -b broker-a -i 0 -o 0 -c 1",
)
_ONLINE = (
    f"consumerProgress -g {GROUP}",
    "consumerProgress",
    f"consumerConnection -g {GROUP}",
    f"consumerStatus -g {GROUP}",
    f"producerConnection -g {PRODUCERS} -t {TOPIC}",
    f"producerConnection -g nobody -t {TOPIC}",
    f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s -1",
)
_OFFLINE = (
    f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s 0",
    f"consumerProgress -g {GROUP}",
    f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s -1",
    f"cloneGroupOffset -s {GROUP} -d {OTHER_GROUP} -t {TOPIC}",
    "brokerConsumeStats -b BROKER",
    "statsAll",
    f"updateTopicPerm -t {TOPIC} -p 4 -b BROKER",
    f"updateTopicPerm -t {TOPIC} -p 6 -c DefaultCluster",
    "brokerStatus -b BROKER",
    "getBrokerConfig -b BROKER",
    "updateBrokerConfig -b BROKER -k flushDelayOffsetInterval -v 10000",
    "getNamesrvConfig",
    "updateKvConfig -s SPACE -k KEY -v VALUE",
    "deleteKvConfig -s SPACE -k KEY",
    f"updateOrderConf -t {TOPIC} -m put -v broker-a:4",
    f"updateOrderConf -t {TOPIC} -m get",
    f"updateOrderConf -t {TOPIC} -m delete",
    "wipeWritePerm -b broker-a",
    "addWritePerm -b broker-a",
    "cleanUnusedTopic -b BROKER",
    "cleanExpiredCQ -b BROKER",
    "sendMsgStatus -b broker-a -s 10 -c 1",
    f"checkMsgSendRT -t {TOPIC} -a 1 -s 10",
    "topicList",
    "topicList -c",
    f"deleteTopic -c DefaultCluster -t {TOPIC}2",
    f"topicRoute -t {TOPIC}2",
    f"deleteSubGroup -c DefaultCluster -g {GROUP}",
    f"consumerProgress -g {GROUP}",
)


def printed_by(tools: Tools, release: str, name_server: str, broker: str) -> dict[str, str]:
    """Give all commands, and return what each printed; a number marks one that is given again."""
    found: dict[str, str] = {}
    known = {"BROKER": broker}

    def give(command: str) -> None:
        words = [known.get(word, word) for word in command.split()]
        if words[0] == "queryMsgById" and release == BROKER_5_3_3:
            words += ["-t", TOPIC]  # 5.3 demands what 4.9 does not know
        times = sum(key.partition(" #")[0] == command for key in found)
        found[f"{command} #{times + 1}" if times else command] = printed = tools.run(*words)
        for name, pattern in (("UNIQUE", r"\b[0-9A-F]{32,56}\b"), ("OFFSETID", r"OffsetID: +([0-9A-F]{32,56})")):
            if name not in known and (match := re.search(pattern, printed)):
                known[name] = match[match.lastindex or 0]

    for command in _MAKING:
        give(command)
    with _consuming(name_server, MESSAGES):
        pass
    with _consuming(name_server, 0):
        for command in _ONLINE:
            give(command)
    for command in _OFFLINE:
        give(command)
    return found


@contextmanager
def _consuming(name_server: str, count: int) -> Iterator[None]:
    """Be a member of the group, until all of these messages have come and the block ends."""
    app, taken = App("nowhere"), threading.Semaphore(0)

    @app.handler(TOPIC, group=GROUP, start="earliest")
    def take(message: ReceivedMessage) -> None:
        del message
        taken.release()

    url = f"rocketmq://{name_server}"
    producer = Producer(url, group=PRODUCERS)
    consumer = PushConsumer(url, app.handlers)
    consumer.start()
    try:
        for _ in range(count):
            assert taken.acquire(timeout=60), "the consumer did not get every message"
        yield
    finally:
        consumer.close()
        producer.close()
