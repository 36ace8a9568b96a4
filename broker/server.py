"""Server: opens the store, listens, and ends.

A server that ends takes no more connections, answers what it has taken for a bounded time, and closes the store.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable

from rmqclient.broker.broker import Broker
from rmqclient.broker.net.connection import Connection
from rmqclient.broker.settings import Address, ServeSettings
from rmqclient.store import open_store


def serve(settings: ServeSettings, tell: Callable[[str], None]) -> None:
    """Answer requests until TERM or INT. ``tell`` gets one line of JSON when the server is ready.

    Raises as :func:`rmqclient.store.open_store`, and OSError for an address that cannot be listened on.
    """
    with open_store(settings.root) as store:
        broker = Broker(store, settings)
        try:
            asyncio.run(_run(broker, settings, tell))
        finally:
            broker.close()


async def _run(broker: Broker, settings: ServeSettings, tell: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if settings.die_with_parent:
        _when_the_parent_ends(loop, ended.set)
    opened: set[Connection] = set()
    servers = [
        await loop.create_server(
            lambda: Connection(broker.answer, settings.advertise, opened), address.host, address.port, backlog=1024
        )
        for address in settings.listen
    ]
    tell(ready_line(Address(*servers[0].sockets[0].getsockname()[:2])))
    await ended.wait()
    for server in servers:
        server.close()
    for connection in list(opened):
        connection.close()


def _when_the_parent_ends(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """A process, not its thread that started this one, as PR_SET_PDEATHSIG would have it."""
    descriptor = os.pidfd_open(os.getppid())  # stays open as long as this process lives

    def ended() -> None:
        loop.remove_reader(descriptor)
        callback()

    loop.add_reader(descriptor, ended)


def ready_line(address: Address) -> str:
    """Return what a server prints when it can be used: its address and its process."""
    return json.dumps({"name_server": str(address), "pid": os.getpid()})
