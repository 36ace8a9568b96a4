"""Testing: a server of a test's own, which RocketMQ's clients and this library's use.

::

    from rmqclient.testing import serve

    with serve() as server:
        producer = Producer(server.url)

The package brings pytest the fixture ``rmq_broker``, a :class:`Server` for one test.

==================  ===========================================================
``serving``         a server process: started, killed, started again
``plugin``          what pytest reads
==================  ===========================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqclient.testing.serving import Server, ServerFailed, serve

__all__ = ["Server", "ServerFailed", "serve"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rmqclient.testing import serving  # noqa: PLC0415 - pytest imports this package in every run

    return getattr(serving, name)
