"""Requests of administrators to a broker: topics, groups, settings and statistics."""

from __future__ import annotations

from typing import Final

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.declarations.declaration import Direction, Request

_TO_BROKER: Final = Direction.TO_BROKER

_TOPIC: Final = "topic! s"
_PROPERTIES: Final = "properties, one a line"

TOPICS_AND_GROUPS: Final = (
    Request(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        _TO_BROKER,
        "topic! s, defaultTopic! s, readQueueNums! i, writeQueueNums! i, perm! i, topicFilterType! s, topicSysFlag i, "
        "order! b, attributes s, force b",
        note="The broker tells the name servers before it answers. A 4.9 broker ignores order.",
    ),
    Request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, _TO_BROKER, body="topic configs", note="Since 5.0."),
    Request(
        RequestCode.DELETE_TOPIC_IN_BROKER, _TO_BROKER, _TOPIC, note="The name server has to be told with 216, too."
    ),
    Request(
        RequestCode.GET_ALL_TOPIC_CONFIG,
        _TO_BROKER,
        "topicSeq i, maxTopicNum i, dataVersion s",
        answer="totalTopicNum i",
        answer_body="topics.json",
        note="The fields are those of clients after 5.3; an answer without totalTopicNum is complete.",
    ),
    Request(
        RequestCode.GET_TOPIC_CONFIG, _TO_BROKER, _TOPIC, answer_body="topic config", note="Since 5.0. 17 if unknown."
    ),
    Request(RequestCode.GET_TOPIC_STATS_INFO, _TO_BROKER, _TOPIC, answer_body="topic stats", note="17 if unknown."),
    Request(
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        _TO_BROKER,
        _TOPIC,
        answer_body="group list",
        note="Groups that are online or have stored offsets.",
    ),
    Request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, _TO_BROKER, answer_body="topic list"),
    Request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, _TO_BROKER),
    Request(RequestCode.CLEAN_UNUSED_TOPIC, _TO_BROKER),
    Request(RequestCode.DELETE_EXPIRED_COMMITLOG, _TO_BROKER),
    Request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, _TO_BROKER, body="subscription group config"),
    Request(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        _TO_BROKER,
        body="subscription group configs",
        note="Since 5.0.",
    ),
    Request(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        _TO_BROKER,
        "groupSeq i, maxGroupNum i, dataVersion s",
        answer="totalGroupNum i",
        answer_body="subscriptionGroup.json",
        note="The fields are those of clients after 5.3; an answer without totalGroupNum is complete.",
    ),
    Request(
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        _TO_BROKER,
        "group! s",
        answer_body="subscription group config",
        note="Since 5.0. 26 if unknown.",
    ),
    Request(
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        _TO_BROKER,
        "groupName! s, removeOffset b, cleanOffset b",
        note="removeOffset is 4.9's name, cleanOffset that of 5.x.",
    ),
    Request(RequestCode.QUERY_TOPICS_BY_CONSUMER, _TO_BROKER, "group! s", answer_body="topic list", note="Since 5.0."),
    Request(
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        _TO_BROKER,
        "group! s, topic s",
        answer_body="subscription",
        note="Since 5.0.",
    ),
)

CONSUMPTION: Final = (
    Request(
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        _TO_BROKER,
        "consumerGroup! s",
        answer_body="consumer connection",
        note="206 if nobody is online.",
    ),
    Request(
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        _TO_BROKER,
        "producerGroup! s",
        answer_body="producer connection",
        note="1 if nobody is online.",
    ),
    Request(RequestCode.GET_ALL_PRODUCER_INFO, _TO_BROKER, answer_body="producers by group", note="Since 4.9.3."),
    Request(
        RequestCode.GET_CONSUME_STATS,
        _TO_BROKER,
        "consumerGroup! s, topic s, topicList s",
        answer_body="consume stats",
        note="Without a topic: all topics of which the group has offsets.",
    ),
    Request(RequestCode.GET_BROKER_CONSUME_STATS, _TO_BROKER, "isOrder! b", answer_body="consume stats list"),
    Request(
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        _TO_BROKER,
        "topic! s, group! s",
        answer_body="time spans by queue",
        note="17 if unknown.",
    ),
    Request(RequestCode.CLONE_GROUP_OFFSET, _TO_BROKER, "srcGroup! s, destGroup! s, topic s, offline b"),
)

BROKER: Final = (
    Request(
        RequestCode.UPDATE_BROKER_CONFIG, _TO_BROKER, body=_PROPERTIES, note="Unknown keys are ignored without a word."
    ),
    Request(
        RequestCode.GET_BROKER_CONFIG,
        _TO_BROKER,
        answer="version! s",
        answer_body=_PROPERTIES,
        note="version is a data version in JSON.",
    ),
    Request(RequestCode.GET_BROKER_RUNTIME_INFO, _TO_BROKER, answer_body="table of texts"),
    Request(
        RequestCode.VIEW_BROKER_STATS_DATA,
        _TO_BROKER,
        "statsName! s, statsKey! s",
        answer_body="sums and rates of a minute, an hour and a day",
        note="For example TOPIC_PUT_NUMS and a topic, or GROUP_GET_NUMS and topic@group. 1 if there are none.",
    ),
    Request(RequestCode.GET_BROKER_HA_STATUS, _TO_BROKER, answer_body="state of the slaves", note="Since 5.0."),
    Request(
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO, _TO_BROKER, answer_body="limits on reading old data", note="Since 5.0."
    ),
)

REQUESTS: Final = TOPICS_AND_GROUPS + CONSUMPTION + BROKER
