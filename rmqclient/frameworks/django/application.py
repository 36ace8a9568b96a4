"""Application: the :class:`rmqclient.App` of a project, made from its settings.

::

    from rmqclient.frameworks.django import app

    @app.handler("orders", group="billing")
    def bill(order: dict[str, Any]) -> None: ...

Django has set up its models when this is imported from a ``handlers.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import django
from asgiref.sync import sync_to_async
from django.db import close_old_connections

from rmqclient.app import App
from rmqclient.calling.hooks import HandlerCall
from rmqclient.frameworks.django.settings import given
from rmqclient.handler import is_async

app = App(given("STORE"), config=given("CONFIG"), consumer=given("CONSUMER"))
app.on_import(django.setup)

_closing: set[asyncio.Task[None]] = set()
"""A loop keeps no reference to its tasks."""


@app.middleware
def fresh_connections(call: HandlerCall) -> Iterator[None]:
    """Close connections that are broken, or older than ``CONN_MAX_AGE``, before and after each call, as a request does.

    A coroutine uses its database in the thread of ``sync_to_async``, where they are closed after the call.
    """
    if is_async(call.handler.function):
        try:
            yield
        finally:
            task = asyncio.ensure_future(sync_to_async(close_old_connections)())
            _closing.add(task)
            task.add_done_callback(_closing.discard)
        return
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()
