"""Groups, as tools change and look at them."""

from __future__ import annotations

import pytest

from rmqclient import Message, Producer, PullConsumer
from rmqclient.remoting.bodies import GroupConfig, GroupTable, TopicList
from rmqclient.remoting.codes import RequestCode
from tests.broker.asking import Asking


def test_a_group_has_the_settings_that_it_was_given(client: Asking) -> None:
    wanted = GroupConfig("billing", may_consume=False, most_retries=3, may_broadcast=False)
    assert client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, wanted.encode()).code == 0
    assert client.broker.group_settings.settings("billing") == wanted
    told = client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="billing")
    assert GroupConfig.decode(told.body) == wanted
    assert _table(client)["billing"] == wanted


def test_a_group_of_local_workers_is_listed_with_the_defaults(client: Asking) -> None:
    with Producer(client.broker.store.root) as producer:
        producer.send(Message(topic="orders", body=b"x"))
    with PullConsumer(client.broker.store.root, group="readers") as consumer:
        for queue in consumer.queues("orders"):
            consumer.commit(queue, 0)
    assert _table(client) == {"readers": GroupConfig("readers")}
    topics = client.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="readers")
    assert TopicList.decode(topics.body).topics == ("orders",)


def test_deleted_settings_are_the_defaults_again(client: Asking) -> None:
    client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, GroupConfig("billing", most_retries=3).encode())
    assert client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="billing", removeOffset=True).code == 0
    assert client.broker.group_settings.settings("billing").most_retries == 16
    assert client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="billing").code == 26


def test_a_tool_that_wants_the_offsets_removed_has_them_removed(client: Asking) -> None:
    root = client.broker.store.root
    with Producer(root) as producer:
        producer.send(Message(topic="orders", body=b"x"))
    with PullConsumer(root, group="readers") as consumer:
        for queue in consumer.queues("orders"):
            consumer.commit(queue, 0)
    for removes, kept in ((False, {"readers": GroupConfig("readers")}), (True, {})):
        client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="readers", removeOffset=removes)
        assert _table(client) == kept


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"groupName":"a/b"}', b'{"groupName":"g","retryMaxTimes":{}}'])
def test_a_body_that_is_no_group_is_refused(client: Asking, body: bytes) -> None:
    answer = client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
    assert (answer.code, bool(answer.remark)) == (1, True)
    assert _table(client) == {}


def _table(client: Asking) -> dict[str, GroupConfig]:
    return GroupTable.decode(client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body).groups
