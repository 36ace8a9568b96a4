"""RabbitMQ: a durable queue for each topic, with publisher confirms."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.peer import Enough, Handle, Level, Peer, Promise, Running
from benchmarks.peers.processes import DEBIAN, free_port, listens, server

_ERLANG = DEBIAN / "usr" / "lib" / "erlang"
_RABBIT = DEBIAN / "usr" / "lib" / "rabbitmq" / "lib"
_ERLANG_PACKAGES = (
    "asn1 base crypto eldap ftp inets mnesia os-mon parsetools public-key runtime-tools snmp ssl syntax-tools tftp "
    "tools xmerl"
)
_PREFETCH = 200
_PERSISTENT = 2
_WAIT_S = 0.05


class RabbitMQ(Peer):
    """Its server is unpacked from Debian's packages, with Erlang."""

    packages: ClassVar[tuple[str, ...]] = ("pika==1.4.4",)
    debian: ClassVar[tuple[str, ...]] = (*(f"erlang-{name}" for name in _ERLANG_PACKAGES.split()), "rabbitmq-server")
    delays: ClassVar[bool] = True
    name = "rabbitmq"
    title = "RabbitMQ, durable queue"
    promise = Promise(Level.DISK, "before a confirm, many together")
    ways = (
        "pika, persistent messages, publisher confirms; many: 100 publishes under way; consumes: basic_consume with a "
        "prefetch of 200, an acknowledgement for each; delays: a queue with a time to live before a dead letter "
        "exchange"
    )

    def missing(self) -> str:
        """Return whether its packages are not there."""
        return "" if list(_RABBIT.glob("rabbitmq_server-*")) else "rabbitmq-server was not unpacked"

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Start Erlang's port mapper and a node, both on ports of their own."""
        names, port, distribution = free_port(), free_port(), free_port()
        (home / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
        (home / "enabled_plugins").write_text("[].")
        epmd = [str(next(_ERLANG.glob("erts-*/bin/epmd"))), "-address", "127.0.0.1", "-port", str(names)]
        with (
            server(epmd, home, listens(names)) as mapper,
            server(_node(), home, listens(port), environment=_environment(home, names, distribution)) as node,
        ):
            yield Running(f"127.0.0.1:{port}", (mapper, node), home)

    @contextmanager
    def session(self, address: str, topic: str, *, ordered: bool = False) -> Iterator[Channel]:
        """Connect, and declare the queues."""
        import pika

        assert not ordered
        host, _, port = address.partition(":")
        connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port), heartbeat=0))
        channel = connection.channel()
        channel.queue_declare(topic, durable=True)
        later = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": topic}
        channel.queue_declare(f"{topic}-later", durable=True, arguments=later)
        try:
            yield Channel(connection, channel, topic)
        finally:
            connection.close()

    def versions(self) -> dict[str, str]:
        """Return the version of the server."""
        return {"server": next(_RABBIT.glob("rabbitmq_server-*")).name.partition("-")[2]}


def _node() -> list[str]:
    return ["sh", str(next(_RABBIT.glob("rabbitmq_server-*")) / "sbin" / "rabbitmq-server")]


def _environment(home: Path, names: int, distribution: int) -> dict[str, str]:
    """Let the scripts find what was unpacked elsewhere than they think."""
    return {
        "HOME": str(home),
        "PATH": f"{_with_erl(home)}:{os.environ['PATH']}",
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_NODENAME": "rabbit@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "RABBITMQ_FEATURE_FLAGS_FILE": str(home / "feature_flags"),
    }


def _with_erl(home: Path) -> Path:
    """Write an ``erl`` that knows where Erlang is: Debian's has the path that it would be installed at."""
    directory = home / "bin"
    directory.mkdir()
    runtime = next(_ERLANG.glob("erts-*/bin"))
    variables = f"EMU=beam ROOTDIR={_ERLANG} BINDIR={runtime} PROGNAME=erl"
    script = directory / "erl"
    script.write_text(f'#!/bin/sh\nexport {variables}\nexec {runtime}/erlexec "$@"\n')
    script.chmod(0o755)
    return directory


class Channel:
    """A session."""

    def __init__(self, connection: Any, channel: Any, topic: str) -> None:
        import pika

        self._connection = connection
        self._channel = channel
        self._topic = topic
        self._persistent = pika.BasicProperties(delivery_mode=_PERSISTENT)
        self._properties = pika.BasicProperties
        self._sent = self._confirmed = 0
        self._confirms = False

    def send(self, body: bytes, key: str = "") -> None:
        """Publish one message, and wait for the confirm."""
        del key
        self._publish(self._topic, body, self._persistent)
        self.settle()

    def send_many(self, bodies: Sequence[bytes]) -> None:
        """Publish messages, and wait for the confirms."""
        for body in bodies:
            self._publish(self._topic, body, self._persistent)
        self.settle()

    def send_later(self, body: bytes, delay_s: float) -> None:
        """Publish to the queue whose messages die."""
        lives = self._properties(delivery_mode=_PERSISTENT, expiration=str(int(delay_s * 1000)))
        self._publish(f"{self._topic}-later", body, lives)
        self.settle()

    def settle(self) -> None:
        """Wait until all are confirmed."""
        if self._confirmed < self._sent:
            self._connection._flush_output(lambda: self._confirmed >= self._sent)

    def consume(self, handle: Handle, enough: Enough) -> None:
        """Be called for each message."""

        def on_message(channel: Any, method: Any, _properties: object, body: bytes) -> None:
            handle(body)
            channel.basic_ack(method.delivery_tag)

        self._channel.basic_qos(prefetch_count=_PREFETCH)
        self._channel.basic_consume(self._topic, on_message)
        while not enough():
            self._connection.process_data_events(time_limit=_WAIT_S)

    def _publish(self, queue: str, body: bytes, properties: Any) -> None:
        """Publish without waiting: pika's blocking channel waits for each confirm, the one inside of it does not."""
        inner = self._channel._impl
        if not self._confirms:
            self._confirms = True
            inner.confirm_delivery(self._on_confirm)
        inner.basic_publish("", queue, body, properties)
        self._sent += 1

    def _on_confirm(self, frame: Any) -> None:
        tag = frame.method.delivery_tag
        self._confirmed = tag if frame.method.multiple else self._confirmed + 1
