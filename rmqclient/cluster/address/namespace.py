"""Namespace: a prefix that keeps the topics and groups of one tenant apart. [NamespaceUtil]

===============  ========================
name             in the namespace ``N``
===============  ========================
``orders``       ``N%orders``
``%RETRY%shop``  ``%RETRY%N%shop``
``%DLQ%shop``    ``%DLQ%N%shop``
===============  ========================

System topics and groups are outside of every namespace. Brokers do not know namespaces: names on the wire have the
prefix, and the property ``INSTANCE_ID`` of a message is its namespace.
"""

from __future__ import annotations

from typing import Final

from rmqclient.names import DEAD_LETTER_PREFIX, RETRY_PREFIX

_SYSTEM_TOPICS: Final = frozenset(
    (
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    )
)  # TopicValidator
_SYSTEM_PREFIXES: Final = ("rmq_sys_", "CID_RMQ_SYS_")


def wrap(namespace: str, name: str) -> str:
    """Return the name of a topic or group on the wire, for a namespace that is not empty.

    A name with the prefix stays unchanged.
    """
    kind, rest = _parted(name)
    if not rest or _is_of_the_system(name) or rest.startswith(f"{namespace}%"):
        return name
    return f"{kind}{namespace}%{rest}"


def unwrap(namespace: str, name: str) -> str:
    """Return the name of a topic or group without this namespace. A name of another one stays unchanged."""
    kind, rest = _parted(name)
    return kind + rest.removeprefix(f"{namespace}%")


def _parted(name: str) -> tuple[str, str]:
    for kind in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(kind):
            return kind, name.removeprefix(kind)
    return "", name


def _is_of_the_system(name: str) -> bool:
    return name in _SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIXES)
