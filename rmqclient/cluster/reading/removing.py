"""Removing a group from a cluster: what ``mqadmin deleteSubGroup`` does, but for the dead letters. [DeleteSubGroup]

Each broker forgets its settings for the group and the offsets that it keeps for it. Brokers and name servers forget the
group's retry topic, with the messages that wait there. Dead letters stay: they are for people.
"""

from __future__ import annotations

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.names import RETRY_PREFIX
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.table import request


def remove_group(client: ClusterClient, group: str) -> None:
    """Let all brokers forget a group of the application, which nobody runs. It can be done twice.

    Raises the error of a broker that refuses, or that cannot be reached: the brokers before it, by their names, have
    forgotten the group then.
    """
    name = client.url.wrap(group)
    forget = request(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=name, removeOffset=True, cleanOffset=True)
    forget_topic = request(RequestCode.DELETE_TOPIC_IN_BROKER, topic=f"{RETRY_PREFIX}{name}")
    for address in client.routes.masters().values():
        client.call(address, forget)
        client.call(address, forget_topic)
    client.name_servers.call_each(request(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic=f"{RETRY_PREFIX}{name}"))
    client.routes.forget(f"{RETRY_PREFIX}{group}")
