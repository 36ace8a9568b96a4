"""Brokers: their addresses, from the routes of topics; a name server is asked about others."""

from __future__ import annotations

from rmqclient.cluster.client.name_servers import NameServers
from rmqclient.errors import BrokerUnreachable
from rmqclient.remoting.bodies import MASTER_ID, ClusterInfo
from rmqclient.remoting.table import RequestCode, request


class Brokers:
    """The brokers of a cluster, by name. For any thread but the I/O thread.

    A broker that is not known leads to a question to a name server, which raises NameServerUnreachable.
    """

    def __init__(self, name_servers: NameServers) -> None:
        self._name_servers = name_servers
        self._known: dict[str, dict[int, str]] = {}

    def learn(self, addresses: dict[str, dict[int, str]]) -> None:
        """Add or replace brokers: name → broker id → address."""
        self._known.update(addresses)  # in place: two threads may update at once

    def address(self, broker_name: str, broker_id: int = MASTER_ID) -> str:
        """Return the address of a broker's master, or of the slave with this id. Raises BrokerUnreachable."""
        address = self.addresses(broker_name).get(broker_id)
        if address is None:
            role = "master" if broker_id == MASTER_ID else f"slave with id {broker_id}"
            raise BrokerUnreachable(f"broker {broker_name!r} has no {role} at present, by its routes")
        return address

    def read_address(self, broker_name: str, broker_id: int = MASTER_ID) -> str:
        """Return the address with this id, else the master's, else any slave's. Raises BrokerUnreachable."""
        addresses = self.addresses(broker_name)
        for wanted in (broker_id, *sorted(addresses)):
            if wanted in addresses:
                return addresses[wanted]
        raise BrokerUnreachable(f"broker {broker_name!r} has neither a master nor slaves at present, by its routes")

    def addresses(self, broker_name: str) -> dict[int, str]:
        """Return the addresses of a broker by broker id, 0 for the master; empty for an unknown broker."""
        if broker_name not in self._known:
            self.learn({name: broker.addresses for name, broker in self.cluster().brokers.items()})
        return self._known.get(broker_name, {})

    def has_master(self, broker_name: str) -> bool:
        """Whether a broker has a master, as far as known. For any thread, also the I/O thread."""
        return bool(self.master_address(broker_name))

    def master_address(self, broker_name: str) -> str:
        """Return the address of a broker's master as far as known, or an empty string. For any thread."""
        return self._known.get(broker_name, {}).get(MASTER_ID, "")

    def masters(self) -> dict[str, str]:
        """Ask a name server for the addresses of all masters, by broker name."""
        brokers = self.cluster().brokers.items()
        return {name: broker.addresses[MASTER_ID] for name, broker in sorted(brokers) if MASTER_ID in broker.addresses}

    def cluster(self) -> ClusterInfo:
        """Ask a name server for all brokers. Raises NameServerUnreachable."""
        return ClusterInfo.decode(self._name_servers.call(request(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
