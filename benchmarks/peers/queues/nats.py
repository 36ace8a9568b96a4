"""NATS JetStream: a stream in files for each topic, with a pull consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.peer import Enough, Handle, Level, Peer, Promise, Running
from benchmarks.peers.processes import free_port, lacking, listens, program, server, version_of

_AT_ONCE = 100
_WAIT_S = 0.05


class Nats(Peer):
    """One stream for each topic."""

    packages: ClassVar[tuple[str, ...]] = ("nats-py==2.16.0",)
    debian: ClassVar[tuple[str, ...]] = ("nats-server",)
    name = "nats"
    title = "NATS JetStream, files"
    promise = Promise(Level.HOST, "every 2 min (sync_interval)")
    ways = (
        "nats-py; many: 100 publishes under way at once; consumes: a pull consumer, 100 at once, an answer for each "
        "without waiting"
    )

    def missing(self) -> str:
        """Return whether there is no server."""
        return lacking("nats-server")

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Start a server."""
        port = free_port()
        command = [program("nats-server"), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(home)]
        with server(command, home, listens(port)) as pid:
            yield Running(f"nats://127.0.0.1:{port}", (pid,), home)

    @contextmanager
    def session(self, address: str, topic: str, *, ordered: bool = False) -> Iterator[Jet]:
        """Connect, and make the stream."""
        import nats

        assert not ordered
        loop = asyncio.new_event_loop()
        connection = loop.run_until_complete(nats.connect(address))
        jet = connection.jetstream()
        loop.run_until_complete(jet.add_stream(name=topic, subjects=[topic], storage="file"))
        try:
            yield Jet(loop, jet, topic)
        finally:
            loop.run_until_complete(connection.close())

    def versions(self) -> dict[str, str]:
        """Return the version of the server."""
        return {"server": version_of(program("nats-server"), "--version")}


class Jet:
    """A session."""

    def __init__(self, loop: asyncio.AbstractEventLoop, jet: Any, topic: str) -> None:
        self._loop = loop
        self._jet = jet
        self._topic = topic

    def send(self, body: bytes, key: str = "") -> None:
        """Publish one message."""
        del key
        self._loop.run_until_complete(self._jet.publish(self._topic, body))

    def send_many(self, bodies: Sequence[bytes]) -> None:
        """Publish messages, and wait for all answers."""
        self._loop.run_until_complete(self._publish_all(bodies))

    def settle(self) -> None:
        """Do nothing: every answer has come."""

    def consume(self, handle: Handle, enough: Enough) -> None:
        """Pull messages."""
        self._loop.run_until_complete(self._pull(handle, enough))

    async def _publish_all(self, bodies: Sequence[bytes]) -> None:
        await asyncio.gather(*(self._jet.publish(self._topic, body) for body in bodies))

    async def _pull(self, handle: Handle, enough: Enough) -> None:
        subscription = await self._jet.pull_subscribe(self._topic, durable="readers", stream=self._topic)
        while not enough():
            try:
                messages = await subscription.fetch(_AT_ONCE, timeout=_WAIT_S)
            except TimeoutError:  # the client's own error is one
                continue
            for message in messages:
                handle(message.data)
                await message.ack()
