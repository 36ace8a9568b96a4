"""Django: handlers and tasks of a project, sent in its transactions and run by ``manage.py rmq run``.

Add ``"rmqclient.frameworks.django"`` to ``INSTALLED_APPS``, and name a store::

    RMQ = {"STORE": BASE_DIR / "store", "OUTBOX": "default"}
    TASKS = {"default": {"BACKEND": "rmqclient.frameworks.django.RmqBackend"}}

=================  =============================================================================
``app``            the application, for handlers in the ``handlers.py`` of any installed app
``outbox``         messages that are sent if their transaction commits, through any kill
``send_on_commit`` the same without a table, unless the process dies after the commit
``Inbox``          changes that are made once for a message
``RmqBackend``     the backend of ``django.tasks``, or of the package ``django-tasks``
=================  =============================================================================

A name is imported when it is first used, because Django imports this package before its models can be.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqclient.frameworks.django.application import app
    from rmqclient.frameworks.django.inboxes import Inbox
    from rmqclient.frameworks.django.outboxes import Outbox, outbox
    from rmqclient.frameworks.django.sending import send_on_commit
    from rmqclient.frameworks.django.task_backend import RmqBackend

__all__ = ["Inbox", "Outbox", "RmqBackend", "app", "outbox", "send_on_commit"]

_HOMES = {
    "Inbox": "inboxes",
    "Outbox": "outboxes",
    "RmqBackend": "task_backend",
    "app": "application",
    "outbox": "outboxes",
    "send_on_commit": "sending",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
