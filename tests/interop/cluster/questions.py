"""Questions to a name server, in frames that are made here by hand.

The harness does not use the code that is tried with it. A frame is its length, the length of its header, a header of
JSON and a body, both lengths in 4 bytes, the first byte of the second being 0 for JSON.
"""

from __future__ import annotations

import json
import socket
import struct

_GET_BROKER_CLUSTER_INFO = 106
_TIMEOUT_S = 3.0


def cluster_info(name_server: str) -> str:
    """Return a name server's ``ClusterInfo`` as it was sent: fastjson's, with bare numbers as keys. Raises OSError."""
    return _asked(name_server, _GET_BROKER_CLUSTER_INFO).decode()


def _asked(address: str, code: int) -> bytes:
    header = json.dumps({"code": code, "flag": 0, "language": "OTHER", "opaque": 1, "version": 407}).encode()
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), _TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)
        (length,) = struct.unpack(">I", _exactly(connection, 4))
        frame = _exactly(connection, length)
    header_length = int.from_bytes(frame[1:4], "big")
    return frame[4 + header_length :]


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            raise ConnectionError("the name server closed the connection")
        found += part
    return found
