"""Testing: an application under test by a clock that the test moves, and a server of a test's own.

::

    from rmqclient.testing import Kit, serve

    with Kit(app) as kit:
        kit.send("orders", {"id": 1})
        kit.drain()
        kit.assert_sent("invoices", {"order": 1})

    with serve() as server:
        producer = Producer(server.url)

The package brings pytest the fixtures ``rmq``, which makes a :class:`Kit` of the test's applications, and
``rmq_broker``, a :class:`Server` for one test.

==================  ===========================================================
``kit``             handlers on a store of the test, drained by the test
``recorder``        what handlers were called with and raised, planned failures
``sent``            which messages were sent, and which a test means
``processes``       handlers in real processes, also such that are killed
``serving``         a server process: started, killed, started again
``plugin``          what pytest reads
==================  ===========================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqclient.testing.kit import Kit
    from rmqclient.testing.recorder import Drained, DrainTimeout
    from rmqclient.testing.serving import Server, ServerFailed, serve

__all__ = ["DrainTimeout", "Drained", "Kit", "Server", "ServerFailed", "serve"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rmqclient.testing import serving  # noqa: PLC0415 - pytest imports this package in every run

    if hasattr(serving, name):
        return getattr(serving, name)
    from rmqclient.testing import kit  # noqa: PLC0415

    return getattr(kit, name)
