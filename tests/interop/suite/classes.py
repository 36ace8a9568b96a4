"""The integration tests of RocketMQ 4.9.7: each class of the published tests, and how many tests it has.

Of the 50 classes whose names end with IT two are not here: ``DLedgerProduceAndConsumeIT`` starts brokers of its own,
and ``BaseBroadCastIT`` is what others extend, without a test. RocketMQ ignores ``OrderMsgBroadCastIT``.
"""

from __future__ import annotations

PACKAGE = "org.apache.rocketmq.test"

TESTS = {
    "client.consumer.balance.NormalMsgDynamicBalanceIT": 2,
    "client.consumer.balance.NormalMsgStaticBalanceIT": 2,
    "client.consumer.broadcast.normal.BroadCastNormalMsgNotRecvIT": 1,
    "client.consumer.broadcast.normal.BroadCastNormalMsgRecvCrashIT": 1,
    "client.consumer.broadcast.normal.BroadCastNormalMsgRecvFailIT": 1,
    "client.consumer.broadcast.normal.BroadCastNormalMsgRecvStartLaterIT": 1,
    "client.consumer.broadcast.normal.BroadCastNormalMsgTwoDiffGroupRecvIT": 1,
    "client.consumer.broadcast.normal.NormalMsgTwoSameGroupConsumerIT": 1,
    "client.consumer.broadcast.order.OrderMsgBroadCastIT": 0,
    "client.consumer.broadcast.tag.BroadCastTwoConsumerFilterIT": 1,
    "client.consumer.broadcast.tag.BroadCastTwoConsumerSubDiffTagIT": 1,
    "client.consumer.broadcast.tag.BroadCastTwoConsumerSubTagIT": 1,
    "client.consumer.cluster.DynamicAddAndCrashIT": 2,
    "client.consumer.cluster.DynamicAddConsumerIT": 2,
    "client.consumer.cluster.DynamicCrashConsumerIT": 2,
    "client.consumer.filter.SqlFilterIT": 2,
    "client.consumer.tag.MulTagSubIT": 5,
    "client.consumer.tag.TagMessageWith1ConsumerIT": 8,
    "client.consumer.tag.TagMessageWithMulConsumerIT": 4,
    "client.consumer.tag.TagMessageWithSameGroupConsumerIT": 3,
    "client.consumer.topic.MulConsumerMulTopicIT": 3,
    "client.consumer.topic.OneConsumerMulTopicIT": 3,
    "client.producer.async.AsyncSendExceptionIT": 6,
    "client.producer.async.AsyncSendWithMessageQueueIT": 1,
    "client.producer.async.AsyncSendWithMessageQueueSelectorIT": 1,
    "client.producer.async.AsyncSendWithOnlySendCallBackIT": 1,
    "client.producer.batch.BatchSendIT": 2,
    "client.producer.exception.msg.ChinaPropIT": 2,
    "client.producer.exception.msg.MessageExceptionIT": 10,
    "client.producer.exception.msg.MessageUserPropIT": 2,
    "client.producer.exception.producer.ProducerGroupAndInstanceNameValidityIT": 2,
    "client.producer.oneway.OneWaySendExceptionIT": 3,
    "client.producer.oneway.OneWaySendIT": 1,
    "client.producer.oneway.OneWaySendWithMQIT": 1,
    "client.producer.oneway.OneWaySendWithSelectorIT": 1,
    "client.producer.order.OrderMsgDynamicRebalanceIT": 2,
    "client.producer.order.OrderMsgIT": 3,
    "client.producer.order.OrderMsgRebalanceIT": 2,
    "client.producer.order.OrderMsgWithTagIT": 5,
    "client.producer.querymsg.QueryMsgByIdExceptionIT": 2,
    "client.producer.querymsg.QueryMsgByIdIT": 1,
    "client.producer.querymsg.QueryMsgByKeyIT": 4,
    "client.producer.transaction.TransactionalMsgIT": 1,
    "delay.NormalMsgDelayIT": 4,
    "smoke.NormalMessageSendAndRecvIT": 1,
    "tls.TLS_IT": 1,
    "tls.TLS_Mix2_IT": 1,
    "tls.TLS_Mix_IT": 1,
}
"""108 tests."""

IGNORED = frozenset({"client.consumer.broadcast.order.OrderMsgBroadCastIT"})
"""By RocketMQ itself."""
