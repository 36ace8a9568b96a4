"""Bodies that only tools send or read, and that are less than an object of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqclient.remoting.bodies import fastjson
from rmqclient.remoting.errors import BodyError


def entries(body: bytes, name: str) -> list[Any]:
    """Return the list that the body of a request has under a name, or is. Raises BodyError."""
    value = fastjson.read(body)
    found = value.get(name) if isinstance(value, dict) else value
    if not isinstance(found, list):
        raise BodyError(f"a list {name} is expected, not {found!r:.80}")
    return found


def lines(settings: Mapping[str, object]) -> bytes:
    """Return settings as the lines of a Java properties file, ``key=value``."""
    return "".join(f"{key}={_text(value)}\n" for key, value in sorted(settings.items())).encode()


def keys_of_lines(body: bytes) -> list[str]:
    """Return the keys that the lines of a Java properties file name."""
    found = [line.strip() for line in body.decode(errors="replace").splitlines()]
    return [line.partition("=")[0].strip() for line in found if line and not line.startswith("#")]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
