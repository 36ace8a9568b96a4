"""KV settings: a name server's table of values, by namespace and key. [KVConfigManager]

``config/kvConfig.json`` keeps them in RocketMQ's form. RocketMQ itself uses one namespace, ``ORDER_TOPIC_CONFIG``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import Final

from rmqclient.broker.request import Request
from rmqclient.broker.routes import ADMINISTRATOR, NOTHING, Route
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.frame import Frame
from rmqclient.store.settings import document

FILE: Final = Path("config", "kvConfig.json")
_TABLE: Final = "configTable"
_MOST_BYTES: Final = 1 << 20


class KvSettings:
    """Keeps the table. The file is written before a change is answered."""

    def __init__(self, root: Path, *, read_only: bool = False) -> None:
        self._path = root / FILE
        self._is_read_only = read_only
        self._lock = Lock()

    def routes(self) -> Iterable[Route]:
        """Declare the requests about values. Any client of a name server may read them."""
        yield Route(RequestCode.PUT_KV_CONFIG, self._put, needs=ADMINISTRATOR, writes=True, slow=True)
        yield Route(RequestCode.GET_KV_CONFIG, self._get, needs=NOTHING, writes=False, slow=True)
        yield Route(RequestCode.DELETE_KV_CONFIG, self._delete, needs=ADMINISTRATOR, writes=True, slow=True)
        yield Route(RequestCode.GET_KVLIST_BY_NAMESPACE, self._list, needs=NOTHING, writes=False, slow=True)

    def table(self, namespace: str) -> dict[str, str]:
        """Return the values of a namespace by key; empty for an unknown one. Raises StoreCorrupt for a damaged file."""
        return self._read().get(namespace, {})

    def _put(self, request: Request) -> Frame:
        fields = request.fields
        with self._lock:
            whole = self._read()
            whole.setdefault(fields["namespace"], {})[fields["key"]] = fields["value"]
            self._write(whole)
        return request.success()

    def _get(self, request: Request) -> Frame:
        namespace, key = request.fields["namespace"], request.fields["key"]
        value = self.table(namespace).get(key)
        if value is None:
            return request.failure(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}")
        return request.success(value=value)

    def _delete(self, request: Request) -> Frame:
        with self._lock:
            whole = self._read()
            if whole.get(request.fields["namespace"], {}).pop(request.fields["key"], None) is not None:
                self._write(whole)
        return request.success()

    def _list(self, request: Request) -> Frame:
        namespace = request.fields["namespace"]
        found = self._read().get(namespace)
        if found is None:
            return request.failure(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return request.success(bodies.KVTable(found).encode())

    def _read(self) -> dict[str, dict[str, str]]:
        namespaces = document.table(self._path, document.read(self._path) or {}, _TABLE)
        return {
            namespace: {key: str(value) for key, value in document.fields(self._path, namespace, table).items()}
            for namespace, table in namespaces.items()
        }

    def _write(self, whole: Mapping[str, Mapping[str, str]]) -> None:
        if self._is_read_only:
            raise AnswerError(ResponseCode.NO_PERMISSION, "this server is for reading only")
        text = document.render({_TABLE: whole})
        if len(text) > _MOST_BYTES:
            raise AnswerError(
                ResponseCode.SYSTEM_ERROR,
                f"the settings would take {len(text):,} bytes, and {_MOST_BYTES:,} is the most",
            )
        document.write(self._path, text)
