"""Requests of administrators about access: 4.9's access keys, and users and rules since 5.3."""

from __future__ import annotations

from typing import Final

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.declarations.declaration import Direction, Request

_TO_BROKER: Final = Direction.TO_BROKER

_USER: Final = "username s"
_SUBJECT: Final = "subject s"

REQUESTS: Final = (
    Request(
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        _TO_BROKER,
        "accessKey! s, secretKey s, whiteRemoteAddress s, admin b, defaultTopicPerm s, defaultGroupPerm s, "
        "topicPerms s, groupPerms s",
        note="4.9 only; 209 if it fails.",
    ),
    Request(RequestCode.DELETE_ACL_CONFIG, _TO_BROKER, "accessKey! s", note="4.9 only; 210 if it fails."),
    Request(
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        _TO_BROKER,
        answer="version! s, allAclFileVersion s, brokerName! s, brokerAddr! s, clusterName! s",
        note="4.9 only.",
    ),
    Request(
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        _TO_BROKER,
        "globalWhiteAddrs! s, aclFileFullPath! s",
        note="4.9 only; 211 if it fails.",
    ),
    Request(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, _TO_BROKER, answer_body="access keys", note="4.9 only."),
    Request(RequestCode.AUTH_CREATE_USER, _TO_BROKER, _USER, body="user", note="Since 5.3, as all below."),
    Request(RequestCode.AUTH_UPDATE_USER, _TO_BROKER, _USER, body="user"),
    Request(RequestCode.AUTH_DELETE_USER, _TO_BROKER, _USER),
    Request(RequestCode.AUTH_GET_USER, _TO_BROKER, _USER, answer_body="user"),
    Request(RequestCode.AUTH_LIST_USER, _TO_BROKER, "filter s", answer_body="users"),
    Request(RequestCode.AUTH_CREATE_ACL, _TO_BROKER, _SUBJECT, body="rules"),
    Request(RequestCode.AUTH_UPDATE_ACL, _TO_BROKER, _SUBJECT, body="rules"),
    Request(RequestCode.AUTH_DELETE_ACL, _TO_BROKER, "subject s, policyType s, resource s"),
    Request(RequestCode.AUTH_GET_ACL, _TO_BROKER, _SUBJECT, answer_body="rules"),
    Request(RequestCode.AUTH_LIST_ACL, _TO_BROKER, "subjectFilter s, resourceFilter s", answer_body="rules of all"),
)
