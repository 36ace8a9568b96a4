"""Group settings: the administrator's settings of each group, in ``config/subscriptionGroup.json``.

The file has RocketMQ's form. A group gets the defaults when a client first uses it. These are written with the next
change and at the end; if they are lost, they can be made again. [SubscriptionGroupManager]
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final

from rmqclient.broker.address import Address
from rmqclient.broker.limits.counters import Counters
from rmqclient.broker.limits.limits import Limits
from rmqclient.broker.limits.made import Kind, Made
from rmqclient.broker.stored_names import MOST_GROUP_CHARACTERS, is_group, is_shortened, stored_group
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError, BodyError
from rmqclient.store import clock
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.settings import document

FILE: Final = Path("config", "subscriptionGroup.json")
_TABLE: Final = "subscriptionGroupTable"
_MOST_GROUPS: Final = 16_384


class GroupSettings:
    """The settings of all groups. Methods may be called by any thread; those that change them wait for the disk."""

    def __init__(self, root: Path, *, read_only: bool = False, made: Made | None = None) -> None:
        """Read the file. Raises StoreCorrupt if it is damaged and has no good ``.bak``.

        ``made`` bounds what clients make.
        """
        self._path = root / FILE
        self._is_read_only = read_only
        self._made = made or Made(Limits(), Counters())
        self._lock = Lock()
        self._is_changed = False
        whole = document.read(self._path) or {}
        self._groups = _read_groups(self._path, document.table(self._path, whole, _TABLE))
        version = document.table(self._path, whole, "dataVersion")
        self._data_version = (
            _read_version(self._path, version) if version else None
        )  # what the file says, or the last change

    def settings(self, group: str) -> bodies.GroupConfig:
        """Return the settings of a group; RocketMQ's defaults for an unknown one."""
        return self._groups.get(group) or bodies.GroupConfig(group)

    def find(self, group: str) -> bodies.GroupConfig | None:
        """Return the settings of a group; None for an unknown one."""
        return self._groups.get(group)

    def auto_create(self, group: str, client: Address) -> bodies.GroupConfig:
        """Return the settings of a group that a client uses; a new one gets the defaults. Does not wait for the disk.

        Raises AnswerError for an invalid name, and if there are too many groups, in all or of this address.
        """
        found = self._groups.get(group)
        if found is None:
            self._check(group)
            self._made.take(Kind.GROUP, client)
            with self._lock:
                found = self._groups.setdefault(group, bodies.GroupConfig(group))
                self._count()
        return found

    def name_of(self, stored: str) -> str:
        """Return the name of the group that has this name in the store."""
        if stored in self._groups or not is_shortened(stored):
            return stored
        with self._lock:
            return next((name for name in self._groups if stored_group(name) == stored), stored)

    def table(self) -> bodies.GroupTable:
        """Return the settings of all groups."""
        with self._lock:
            return bodies.GroupTable(self._version, dict(self._groups))

    def change(self, config: bodies.GroupConfig) -> None:
        """Set the settings of a group, on disk. Raises AnswerError as :meth:`auto_create`."""
        self._check(config.name)
        with self._lock:
            self._groups[config.name] = config
            self._count()
            self._write()

    def delete(self, group: str) -> bool:
        """Delete the settings of a group; return whether there were any."""
        with self._lock:
            if self._groups.pop(group, None) is None:
                return False
            self._count()
            self._write()
            return True

    def close(self) -> None:
        """Write pending changes."""
        with self._lock:
            if self._is_changed and not self._is_read_only:
                self._write()

    def _check(self, group: str) -> None:
        if not is_group(group):
            raise AnswerError(
                ResponseCode.SYSTEM_ERROR,
                f"group {group[:260]!r}: a name has 1 to {MOST_GROUP_CHARACTERS} of the characters %|a-zA-Z0-9_-",
            )
        if len(self._groups) >= _MOST_GROUPS and group not in self._groups:
            raise AnswerError(ResponseCode.SYSTEM_ERROR, f"group {group}: there are {_MOST_GROUPS:,} groups already")

    @property
    def _version(self) -> bodies.DataVersion:
        return self._data_version or bodies.DataVersion()  # imported on demand

    def _count(self) -> None:
        self._data_version = bodies.DataVersion(self._version.counter + 1, clock.wall_ms())
        self._is_changed = True

    def _write(self) -> None:
        if self._is_read_only:
            raise AnswerError(ResponseCode.NO_PERMISSION, "this server is for reading only")
        whole = document.read(self._path) or {}
        kept = document.table(self._path, whole, _TABLE)
        strange = {name: entry for name, entry in kept.items() if not is_group(name)}
        ours = {name: {**_fields(kept.get(name)), **config.to_json()} for name, config in self._groups.items()}
        whole[_TABLE] = {**strange, **ours}
        whole["dataVersion"] = {**_fields(whole.get("dataVersion")), **self._version.to_json()}
        document.write(self._path, document.render(whole))
        self._is_changed = False


def _read_groups(path: Path, table: Mapping[str, Any]) -> dict[str, bodies.GroupConfig]:
    found = {}
    for name, entry in table.items():
        fields = document.fields(path, name, entry)
        if is_group(name):
            try:
                found[name] = bodies.GroupConfig.of({"groupName": name, **fields})
            except BodyError as error:
                raise StoreCorrupt(path, 0, f"group {name}: {error}") from None
    return found


def _read_version(path: Path, fields: Mapping[str, Any]) -> bodies.DataVersion:
    try:
        return bodies.DataVersion.of(dict(fields))
    except BodyError as error:
        raise StoreCorrupt(path, 0, f"dataVersion: {error}") from None


def _fields(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
