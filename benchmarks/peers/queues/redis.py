"""Redis Streams: ``XADD``, pipelines of it, and consumer groups, over a UNIX socket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.peer import Enough, Handle, Level, Peer, Promise, Running
from benchmarks.peers.processes import lacking, program, server, version_of

CLIENT = "redis[hiredis]==8.1.0"
DEBIAN_PACKAGES = ("libatomic1", "libjemalloc2", "liblzf1", "redis-tools", "redis-server")
_GROUP = "readers"
_AT_ONCE = 100
_BLOCK_MS = 50


class Redis(Peer):
    """One stream for each topic. ``fsync`` is its ``appendfsync``."""

    packages: ClassVar[tuple[str, ...]] = (CLIENT,)
    debian: ClassVar[tuple[str, ...]] = DEBIAN_PACKAGES
    ways = (
        "redis-py with hiredis on a UNIX socket; many: 100 XADD in a pipeline; consumes: XREADGROUP of 100, then one "
        "XACK of all"
    )

    def __init__(self, fsync: str) -> None:
        always = fsync == "always"
        self.name = "redis-always" if always else "redis"
        self.title = f"Redis Streams, appendfsync {fsync}"
        self.promise = Promise(Level.DISK, "before each answer") if always else Promise(Level.HOST, "every second")
        self.fsync = fsync

    def missing(self) -> str:
        """Return whether there is no server."""
        return lacking("redis-server")

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Start a server."""
        with started(home, self.fsync) as running:
            yield running

    @contextmanager
    def session(self, address: str, topic: str, *, ordered: bool = False) -> Iterator[Stream]:
        """Connect, and make the group."""
        import redis

        assert not ordered
        with redis.Redis(unix_socket_path=address) as client:
            with suppress(redis.ResponseError):  # the group exists
                client.xgroup_create(topic, _GROUP, id="0", mkstream=True)
            yield Stream(client, topic)

    def versions(self) -> dict[str, str]:
        """Return the version of the server."""
        return {"server": version_of(program("redis-server"), "--version")}


@contextmanager
def started(home: Path, fsync: str = "everysec") -> Iterator[Running]:
    """Run a server that keeps its data in ``home``; its address is a UNIX socket."""
    socket = home / "redis.sock"
    kept = ["--dir", str(home), "--appendonly", "yes", "--appendfsync", fsync, "--save", ""]
    command = [program("redis-server"), "--port", "0", "--unixsocket", str(socket), *kept]
    with server(command, home, socket.exists) as pid:
        yield Running(str(socket), (pid,), home)


class Stream:
    """A session."""

    def __init__(self, client: Any, topic: str) -> None:
        self._client = client
        self._topic = topic

    def send(self, body: bytes, key: str = "") -> None:
        """Add one entry."""
        self._client.xadd(self._topic, {"key": key, "body": body})

    def send_many(self, bodies: Sequence[bytes]) -> None:
        """Add entries in one pipeline."""
        pipeline = self._client.pipeline(transaction=False)
        for body in bodies:
            pipeline.xadd(self._topic, {"key": "", "body": body})
        pipeline.execute()

    def settle(self) -> None:
        """Do nothing: every answer has come."""

    def consume(self, handle: Handle, enough: Enough) -> None:
        """Read new entries of the group."""
        while not enough():
            read = self._client.xreadgroup(_GROUP, "one", {self._topic: ">"}, count=_AT_ONCE, block=_BLOCK_MS)
            streams = read.values() if isinstance(read, dict) else [entries for _, entries in read or ()]
            for entries in streams:
                pairs = [pair for part in entries for pair in part] if isinstance(read, dict) else entries
                for _, fields in pairs:
                    handle(fields[b"body"])
                self._client.xack(self._topic, _GROUP, *(number for number, _ in pairs))
