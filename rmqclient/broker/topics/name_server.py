"""Name server: routes of topics, lists of brokers and topics. [DefaultRequestProcessor of namesrv 4.9.7]

The only broker is this one, perhaps with a replica. A route has the advertised address, or the one that the client
connected to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from rmqclient.broker.address import Address
from rmqclient.broker.request import Peer, Request
from rmqclient.broker.routes import ADMINISTRATOR, NOTHING, Route
from rmqclient.broker.settings import STORE, ServeSettings
from rmqclient.broker.topics.topics import Topics
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store.message_queue import is_name
from rmqclient.store.settings.config_file import TopicConfig

_STRICT_JSON_SINCE: Final = 401
"""Number of the first version whose clients need keys in quotes. [V4_9_4]"""

_WHERE_TO_READ: Final = "See http://rocketmq.apache.org/docs/faq/ for further details."


class NameServer:
    """Answers requests to a name server. ``note_awaited`` is told of missing topics that clients ask for."""

    def __init__(
        self, topics: Topics, settings: ServeSettings, note_awaited: Callable[[Peer, str], None], *, is_replica: bool
    ) -> None:
        self._is_replica = is_replica
        self._topics = topics
        self._settings = settings
        self._note_awaited = note_awaited
        self._wiped: dict[str, TopicConfig] = {}
        """Topics whose write permission an administrator wiped, with their settings at that time; never on disk."""

    def routes(self) -> Iterable[Route]:
        """Declare the requests to a name server. Any client may read routes and lists of topics."""
        handlers = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topic_list,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: _no_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _no_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _no_topics,
            RequestCode.GET_NAMESRV_CONFIG: self._name_server_settings,
        }
        changed = {
            RequestCode.DELETE_TOPIC_IN_NAMESRV: _nothing_to_do,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._unwipe,
            RequestCode.UPDATE_NAMESRV_CONFIG: _refusal(
                "the settings of this server are the options that it was started with"
            ),
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: _NO_OTHER_BROKER,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: _NO_OTHER_BROKER,
        }
        for code, tell in handlers.items():
            yield Route(code, tell, needs=NOTHING, writes=False)
        for code, change in changed.items():
            yield Route(code, change, needs=ADMINISTRATOR, writes=True)
        for code in (RequestCode.QUERY_DATA_VERSION, RequestCode.BROKER_HEARTBEAT):
            yield Route(code, _NO_OTHER_BROKER, needs=ADMINISTRATOR, writes=False)

    def perm(self, topic: str, config: TopicConfig) -> int:
        """Return a topic's permission, without writing while that is wiped."""
        return config.perm & ~bodies.WRITABLE if self._wiped.get(topic) == config else config.perm

    def _route(self, request: Request) -> Frame:
        topic = request.frame.fields.get("topic", "null")
        config = self._topics.config(topic)
        if config is None:
            if is_name(topic):  # a topic of another name is never made
                self._note_awaited(request.peer, topic)
            return request.failure(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}\n{_WHERE_TO_READ}",
            )
        queues = bodies.RouteQueue(
            self._settings.broker_name,
            config.read_queue_count,
            config.write_queue_count,
            self.perm(topic, config),
            config.topic_sys_flag,
        )
        route = bodies.TopicRoute((self._broker(request),), (queues,))
        wants_strict = request.frame.version >= _STRICT_JSON_SINCE or request.fields.get("acceptStandardJsonOnly")
        return request.success(route.encode(as_fastjson=not wants_strict))

    def _cluster(self, request: Request) -> Frame:
        settings = self._settings
        info = bodies.ClusterInfo(
            {settings.broker_name: self._broker(request)}, {settings.cluster_name: (settings.broker_name,)}
        )
        return request.success(info.encode(as_fastjson=True))  # whatever the version, as a name server

    def _topic_list(self, request: Request) -> Frame:
        return request.success(bodies.TopicList(tuple(self._topics.listed())).encode())

    def _topics_of_cluster(self, request: Request) -> Frame:
        is_ours = request.fields["cluster"] == self._settings.cluster_name
        return request.success(bodies.TopicList(tuple(self._topics.listed()) if is_ours else ()).encode())

    def _system_topics(self, request: Request) -> Frame:
        names = (self._settings.cluster_name, self._settings.broker_name)
        return request.success(bodies.TopicList(names, str(request.peer.local)).encode())

    def _wipe(self, request: Request) -> Frame:
        self._wiped = self._of_broker(request)
        return request.success(wipeTopicCount=len(self._wiped))

    def _unwipe(self, request: Request) -> Frame:
        found = self._of_broker(request)
        if found:
            self._wiped = {}
        return request.success(addTopicCount=len(found))

    def _of_broker(self, request: Request) -> dict[str, TopicConfig]:
        is_ours = request.fields["brokerName"] == self._settings.broker_name
        return dict(self._topics.configs()) if is_ours else {}

    def _register(self, request: Request) -> Frame:
        """Answer a slave of this broker with the addresses of log and broker. It does not appear in routes."""
        settings, fields = self._settings, request.fields
        if settings.ha_listen is None or not fields["brokerId"] or fields["brokerName"] != settings.broker_name:
            return _NO_OTHER_BROKER(request)
        local = request.peer.local
        sent_at = Address(local.host, settings.ha_listen.port)
        return request.success(masterAddr=str(local), haServerAddr=str(sent_at))

    def _name_server_settings(self, request: Request) -> Frame:
        lines = {
            "listenPort": str(request.peer.local.port),
            "kvConfigPath": f"{STORE}/config/kvConfig.json",
            "orderMessageEnable": "false",
            "clusterTest": "false",
        }
        return request.success("".join(f"{key}={value}\n" for key, value in lines.items()).encode())

    def _broker(self, request: Request) -> bodies.RouteBroker:
        """Return this broker and its replica. A replica names only itself: it is asked when the primary is gone."""
        settings, local = self._settings, str(request.peer.local)
        addresses = {bodies.SLAVE_ID: local} if self._is_replica else {bodies.MASTER_ID: local}
        if settings.replica is not None:
            addresses[bodies.SLAVE_ID] = str(settings.replica)
        return bodies.RouteBroker(settings.broker_name, settings.cluster_name, addresses)


def _no_topics(request: Request) -> Frame:
    return request.success(_encoded(bodies.TopicList()))


def _nothing_to_do(request: Request) -> Frame:
    """Accept the deletion of a topic in the name server: the broker's request 215 has done it already."""
    return request.success()


def _encoded(body: bodies.Body) -> bytes:
    return body.encode()


def _refusal(text: str) -> Callable[[Request], Frame]:
    def refuse(request: Request) -> Frame:
        return request.failure(ResponseCode.SYSTEM_ERROR, text)

    return refuse


_NO_OTHER_BROKER: Final = _refusal(
    "no other broker can register here, but a slave of this one: this server is a broker and its name server at once"
)
