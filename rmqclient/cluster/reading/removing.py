"""Removing: removes a group from a cluster, as ``mqadmin deleteSubGroup`` does, except for dead letters.

Brokers delete the group's settings and offsets. Brokers and name servers delete its retry topic, with the messages that
wait there. Dead letters stay, because people handle them. [DeleteSubGroup]
"""

from __future__ import annotations

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.names import RETRY_PREFIX
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.table import request


def remove_group(client: ClusterClient, group: str) -> None:
    """Remove a group, by the application's name, that has no members. Removing it twice is no error.

    Raises the error of a broker that refuses or cannot be reached. Brokers before it, in the order of their names, have
    removed the group then.
    """
    name = client.url.wrap(group)
    forget = request(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=name, removeOffset=True, cleanOffset=True)
    forget_topic = request(RequestCode.DELETE_TOPIC_IN_BROKER, topic=f"{RETRY_PREFIX}{name}")
    for address in client.routes.masters().values():
        client.call(address, forget)
        client.call(address, forget_topic)
    client.name_servers.call_each(request(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic=f"{RETRY_PREFIX}{name}"))
    client.routes.forget(f"{RETRY_PREFIX}{group}")
