"""Checks: what ``manage.py check`` says of the settings, before a request or a worker finds out."""

from __future__ import annotations

import os
from typing import Any

from django.core import checks

from rmqclient.app import ROOT_VARIABLE
from rmqclient.frameworks.django.settings import complaints, given


@checks.register("rmq")
def check_settings(**_kwargs: Any) -> list[Any]:
    """Return an error for each setting that is wrong, and a warning if no store is named."""
    found: list[Any] = [checks.Error(problem, hint=hint, id="rmq.E001") for problem, hint in complaints()]
    if not given("STORE") and not os.environ.get(ROOT_VARIABLE):
        hint = f'write RMQ = {{"STORE": BASE_DIR / "store"}}, or set the environment variable {ROOT_VARIABLE}'
        found.append(checks.Warning("no store is named, so nothing can be sent", hint=hint, id="rmq.W002"))
    return found
