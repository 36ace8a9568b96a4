"""Settings: what a project says in ``RMQ`` of its settings.

===========  ===========================================================================================
``STORE``    directory of the store, or URL of a cluster; without it the variable ``RMQ_STORE`` names it
``OUTBOX``   alias of the database whose outbox is sent by the workers; without it there is none
``HANDLERS`` name of the module that is imported of each installed app; ``handlers``
``CONFIG``   a :class:`rmqclient.StoreConfig`, for a store that the project creates
``CONSUMER`` a :class:`rmqclient.ConsumerConfig`
===========  ===========================================================================================
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings
from django.core import checks

from rmqclient.app import ROOT_VARIABLE

KEYS = ("STORE", "OUTBOX", "HANDLERS", "CONFIG", "CONSUMER")


def given(name: str, default: Any = None) -> Any:
    """Return what ``RMQ`` says of one of :data:`KEYS`."""
    assert name in KEYS
    found = getattr(settings, "RMQ", {})
    return found.get(name, default) if isinstance(found, Mapping) else default


def complaints() -> Iterator[tuple[str, str]]:
    """Yield what is wrong with ``RMQ``, and what to do."""
    found = getattr(settings, "RMQ", {})
    if not isinstance(found, Mapping):
        yield f"RMQ={found!r} is not a dict", 'write RMQ = {"STORE": BASE_DIR / "store"}'
        return
    for name in found:
        if name not in KEYS:
            near = difflib.get_close_matches(str(name), KEYS, cutoff=0.4)
            yield f"RMQ[{name!r}] is not known", f"use {' or '.join(near or KEYS)}"
    alias = found.get("OUTBOX")
    if alias is not None and alias not in settings.DATABASES:
        known = ", ".join(settings.DATABASES)
        yield f"RMQ['OUTBOX']={alias!r} names no database", f"give the alias of one of DATABASES: {known}"


@checks.register("rmq")
def check_settings(**_kwargs: Any) -> list[Any]:
    """Return an error for each setting that is wrong, and a warning if no store is named."""
    found: list[Any] = [checks.Error(problem, hint=hint, id="rmq.E001") for problem, hint in complaints()]
    if not given("STORE") and not os.environ.get(ROOT_VARIABLE):
        hint = f'write RMQ = {{"STORE": BASE_DIR / "store"}}, or set the environment variable {ROOT_VARIABLE}'
        found.append(checks.Warning("no store is named, so nothing can be sent", hint=hint, id="rmq.W002"))
    return found
