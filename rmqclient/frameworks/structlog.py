"""structlog: every event of a handler, and of what it calls, names the message that is handled.

::

    structlog.configure(processors=[add_message, structlog.processors.JSONRenderer()])

The processor imports nothing of structlog. Put it before the renderer, and also into the ``foreign_pre_chain`` of a
``ProcessorFormatter``, for the lines of ``logging``.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from rmqclient.calling.current import log_fields


def add_message(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add ``message_id``, ``topic``, ``group`` and ``attempt`` of the running call to an event, but those that it has.

    An event outside of a handler stays as it is. It runs in the thread, or the coroutine, that logs.
    """
    for name, value in log_fields().items():
        event.setdefault(name, value)
    return event
