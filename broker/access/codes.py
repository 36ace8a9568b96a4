"""Codes: which requests write, and which an administrator alone may ask.

One place says it for access keys and for servers that only read. A request that is in neither set reads.
"""

from __future__ import annotations

from typing import Final

from rmqclient.remoting.codes import RequestCode as Code

MESSAGES: Final = frozenset(
    {
        Code.SEND_MESSAGE,
        Code.SEND_MESSAGE_V2,
        Code.SEND_BATCH_MESSAGE,
        Code.CONSUMER_SEND_MSG_BACK,
        Code.END_TRANSACTION,
        Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2,
        Code.RECALL_MESSAGE,
    }
)
"""They write messages."""

PROGRESS: Final = frozenset({Code.UPDATE_CONSUMER_OFFSET, Code.ACK_MESSAGE, Code.BATCH_ACK_MESSAGE})
"""They write how far a group has come."""

ADMINISTRATION: Final = frozenset(
    {
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.UPDATE_AND_CREATE_STATIC_TOPIC,
        Code.UPDATE_BROKER_CONFIG,
        Code.UPDATE_NAMESRV_CONFIG,
        Code.TRIGGER_DELETE_FILES,
        Code.UPDATE_AND_CREATE_ACL_CONFIG,
        Code.DELETE_ACL_CONFIG,
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        Code.PUT_KV_CONFIG,
        Code.DELETE_KV_CONFIG,
        Code.REGISTER_BROKER,
        Code.UNREGISTER_BROKER,
        Code.REGISTER_TOPIC_IN_NAMESRV,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.DELETE_TOPIC_IN_NAMESRV,
        Code.WIPE_WRITE_PERM_OF_BROKER,
        Code.ADD_WRITE_PERM_OF_BROKER,
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        Code.RESET_CONSUMER_OFFSET_IN_BROKER,
        Code.CLONE_GROUP_OFFSET,
        Code.RESUME_CHECK_HALF_MESSAGE,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.DELETE_EXPIRED_COMMITLOG,
        Code.SET_MESSAGE_REQUEST_MODE,
    }
)
"""They change topics, groups, offsets or settings for everybody."""

WRITES: Final = MESSAGES | PROGRESS | ADMINISTRATION
"""What a server that only reads refuses."""

FOR_ADMINISTRATORS: Final = ADMINISTRATION | {
    Code.CONSUME_MESSAGE_DIRECTLY,
    Code.GET_BROKER_CLUSTER_ACL_INFO,
    Code.GET_BROKER_CLUSTER_ACL_CONFIG,
}
"""What only accounts with ``admin`` may ask. A stock broker asks that for topics, groups and its own settings only, and
lets every key move offsets and delete from the name server. [Permission.ADMIN_CODE]"""

FOR_ALL: Final = frozenset(
    {
        Code.GET_ROUTEINFO_BY_TOPIC,
        Code.GET_BROKER_CLUSTER_INFO,
        Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        Code.GET_TOPICS_BY_CLUSTER,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        Code.GET_UNIT_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        Code.GET_KV_CONFIG,
        Code.GET_KVLIST_BY_NAMESPACE,
        Code.GET_NAMESRV_CONFIG,
        Code.GET_BROKER_CONFIG,
        Code.GET_BROKER_RUNTIME_INFO,
        Code.VIEW_BROKER_STATS_DATA,
        Code.GET_ALL_TOPIC_CONFIG,
        Code.GET_TOPIC_CONFIG,
        Code.GET_TOPIC_STATS_INFO,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        Code.GET_SUBSCRIPTIONGROUP_CONFIG,
        Code.GET_CONSUME_STATS,
        Code.GET_BROKER_CONSUME_STATS,
        Code.GET_CONSUMER_CONNECTION_LIST,
        Code.GET_PRODUCER_CONNECTION_LIST,
        Code.GET_ALL_PRODUCER_INFO,
        Code.GET_CONSUMER_RUNNING_INFO,
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        Code.QUERY_TOPIC_CONSUME_BY_WHO,
        Code.QUERY_CONSUME_TIME_SPAN,
        Code.QUERY_TOPICS_BY_CONSUMER,
        Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
        Code.QUERY_CORRECTION_OFFSET,
        Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_DELAY_OFFSET,
        Code.CHECK_CLIENT_CONFIG,
        Code.QUERY_DATA_VERSION,
        Code.BROKER_HEARTBEAT,
    }
)
"""What every key may ask: none of them returns a message or changes anything."""

COMMIT_BIT: Final = 1
"""Of ``sysFlag`` of a pull: it also writes how far the group has come. [PullSysFlag.FLAG_COMMIT_OFFSET]"""
