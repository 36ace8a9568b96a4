"""Address: where a server listens, and where a client is."""

from __future__ import annotations

from typing import NamedTuple


class Address(NamedTuple):
    """A host and a port. Port 0 stands for any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
