"""Broker settings: the server's options under the names of a broker's. [BrokerConfig, MessageStoreConfig]

Only settings that exist here are listed. None can change while the server runs: a broker silently accepts any line,
this server refuses it. Requests cannot change access keys either; they are refused with the codes of 4.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rmqclient.broker.request import Request
from rmqclient.broker.routes import ADMINISTRATOR, NOTHING, Route
from rmqclient.broker.settings import STORE, ServeSettings
from rmqclient.remoting.bodies import DataVersion
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import DELAYS, MessageStore, clock

_CODES_OF_KEYS: Final[Mapping[int, ResponseCode]] = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
    RequestCode.DELETE_ACL_CONFIG: ResponseCode.DELETE_ACL_CONFIG_FAILED,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
}
"""Request code → the code that a 4.9 broker answers if it could not change access keys."""


class BrokerSettings:
    """Tells the settings."""

    def __init__(self, store: MessageStore, settings: ServeSettings) -> None:
        self._store = store
        self._settings = settings
        self._version = DataVersion(0, clock.wall_ms()).encode().decode()

    def routes(self) -> Iterable[Route]:
        """Declare requests about settings. They are options of the server; none of them is a secret."""
        yield Route(RequestCode.GET_BROKER_CONFIG, self._tell, needs=NOTHING, writes=False)
        yield Route(RequestCode.UPDATE_BROKER_CONFIG, self._refuse, needs=ADMINISTRATOR, writes=True)
        for code in _CODES_OF_KEYS:
            yield Route(RequestCode(code), self._refuse_keys, needs=ADMINISTRATOR, writes=True)

    def _tell(self, request: Request) -> Frame:
        config, settings = self._store.config, self._settings
        host, port = request.peer.local
        values: dict[str, object] = {
            "autoCreateSubscriptionGroup": True,
            "autoCreateTopicEnable": settings.auto_create_topics,
            "brokerClusterName": settings.cluster_name,
            "brokerIP1": host,
            "brokerId": 0,
            "brokerName": settings.broker_name,
            "brokerPermission": 4 if settings.read_only else 6,
            "brokerRole": "ASYNC_MASTER",
            "defaultTopicQueueNums": 8,
            "deleteWhen": ";".join(f"{hour:02}" for hour in config.retention.delete_hours),
            "diskMaxUsedSpaceRatio": config.retention.disk_max_used_percent,
            "enablePropertyFilter": True,
            "fileReservedTime": config.retention.file_reserved_hours,
            "flushDiskType": f"{config.durability.name}_FLUSH",
            "listenPort": port,
            "longPollingEnable": True,
            "mappedFileSizeCommitLog": config.commit_log_file_bytes,
            "mappedFileSizeConsumeQueue": config.consume_queue_file_bytes,
            "maxHashSlotNum": config.index_slots,
            "maxIndexNum": config.index_entries,
            "maxMessageSize": config.max_body_bytes,
            "messageDelayLevel": " ".join(DELAYS),
            "messageIndexEnable": config.message_index,
            "namesrvAddr": str(request.peer.local),
            "storePathCommitLog": f"{STORE}/commitlog",
            "storePathRootDir": STORE,
            "traceTopicEnable": True,
            "transactionCheckInterval": config.transactions.check_interval_ms,
            "transactionCheckMax": config.transactions.check_max,
            "transactionTimeOut": config.transactions.timeout_ms,
        }
        return request.success(_lines(values), version=self._version)

    def _refuse(self, request: Request) -> Frame:
        keys = ", ".join(_keys_of_lines(request.body)[:5])[:200]
        return request.failure(
            ResponseCode.SYSTEM_ERROR, f"{keys}: the settings of this server are the options that it was started with"
        )

    def _refuse_keys(self, request: Request) -> Frame:
        return request.failure(
            _CODES_OF_KEYS[request.code],
            "access keys are in the file of --acl, read again when it changes; `rmq serve --make-key` makes one",
        )


def _lines(settings: Mapping[str, object]) -> bytes:
    """Return settings as the lines of a Java properties file, ``key=value``."""
    return "".join(f"{key}={_text(value)}\n" for key, value in sorted(settings.items())).encode()


def _keys_of_lines(body: bytes) -> list[str]:
    """Return the keys that the lines of a Java properties file name."""
    found = [line.strip() for line in body.decode(errors="replace").splitlines()]
    return [line.partition("=")[0].strip() for line in found if line and not line.startswith("#")]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
