"""Settings: the file with what options are when neither the command line nor the environment gives them.

The order, the strongest first:

1. an option on the command line: ``rmq run --processes 4``
2. a variable: ``RMQ_RUN_PROCESSES=4``; for ``--store`` of every command also ``RMQ_STORE``
3. the file that ``--config`` or ``RMQ_CONFIG`` names; otherwise ``./rmq.toml``; otherwise ``[tool.rmq]`` of the nearest
   ``pyproject.toml``, here or above
4. the default that help shows

Tables of the file are commands, keys are options::

    store = "./store"        # for every command, relative to the file

    [run]
    processes = 4

    [group.seek]
    dry-run = true

This module imports nothing that takes long: ``rmq check`` uses it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

FILE = "rmq.toml"


class SettingsError(Exception):
    """The file cannot be read, is no TOML, or has a value that no option takes."""


class Settings(NamedTuple):
    """What a file says; without a file the path is empty."""

    path: str = ""
    values: Mapping[str, Any] = {}

    def option(self, command: Sequence[str], option: str) -> Any:
        """Return the value of an option of a command, such as ``(["group", "seek"], "dry-run")``; None without one.

        ``store`` may stand outside of the tables, for every command. It is relative to the file.
        """
        table: Any = self.values
        for name in command:
            table = table.get(name, {}) if isinstance(table, Mapping) else {}
        found = table.get(option, table.get(option.replace("-", "_"))) if isinstance(table, Mapping) else None
        if option == "store":
            found = self.values.get("store") if found is None else found
            if isinstance(found, str) and "://" not in found:
                found = os.path.join(os.path.dirname(self.path), found)
        return found


def load(named: str | None = None) -> Settings:
    """Read the file that ``named`` or ``RMQ_CONFIG`` gives, or the one that is found. Raises SettingsError."""
    named = named or os.environ.get("RMQ_CONFIG")
    if named:
        return _read(named)
    if os.path.isfile(FILE):
        return _read(FILE)
    directory = os.getcwd()
    while True:
        path = os.path.join(directory, "pyproject.toml")
        if os.path.isfile(path):
            found = _read(path)
            return found if found.values else Settings()
        if directory == os.path.dirname(directory):
            return Settings()
        directory = os.path.dirname(directory)


def _read(path: str) -> Settings:
    import tomllib  # noqa: PLC0415 - without a file nothing is parsed

    try:
        with open(path, "rb") as file:
            values: Any = tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    if os.path.basename(path) == "pyproject.toml":
        values = values.get("tool", {}).get("rmq", {})
        if not isinstance(values, dict):
            raise SettingsError(f"{path}: tool.rmq = {values!r}: write a table, [tool.rmq]")
    if not isinstance(values.get("store", ""), str | dict):
        raise SettingsError(
            f'{path}: store = {values["store"]!r}: give a directory or a URL in quotes: store = "./store"'
        )
    return Settings(path, values)
