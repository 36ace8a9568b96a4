"""The table: every request that is declared, by its code."""

from __future__ import annotations

from typing import Final

from rmqclient.remoting.declarations import access, administration, groups, name_server, pop, reading, sending
from rmqclient.remoting.declarations.declaration import Request

SECTIONS: Final[dict[str, tuple[Request, ...]]] = {
    "Name server": name_server.REQUESTS,
    "Sending": sending.REQUESTS,
    "Reading and offsets": reading.REQUESTS,
    "Groups": groups.REQUESTS,
    "Administration": administration.REQUESTS,
    "Access": access.REQUESTS,
    "POP": pop.REQUESTS,
}
"""The requests in the order of the documentation."""

REQUESTS: Final[dict[int, Request]] = {
    request.code.value: request for section in SECTIONS.values() for request in section
}
