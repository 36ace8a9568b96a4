"""Options: what ``OPTIONS`` of a backend says.

:mod:`rmqclient.frameworks.django.tasks.backend` explains them.
"""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any, Literal

from django.db import DEFAULT_DB_ALIAS

from rmqclient.failures.retry import RetryPolicy
from rmqclient.frameworks.django.settings import given


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What ``OPTIONS`` of a backend says.

    Raises ValueError for a name, or a ``send``, that is not known, and TypeError for a ``retry`` that is no policy.
    """

    send: Literal["outbox", "commit", "now"] | None = None
    threads: int = 1
    retry: RetryPolicy = dataclasses.field(default_factory=RetryPolicy)
    group: str = "tasks"
    results: bool = False
    database: str | None = None

    def __post_init__(self) -> None:
        if self.send not in (None, "outbox", "commit", "now"):
            raise ValueError(f"send={self.send!r}: use 'outbox', 'commit' or 'now'")
        if not isinstance(self.retry, RetryPolicy):
            raise TypeError(f"retry={self.retry!r}: give a policy, such as RetryPolicy(max_retries=3)")

    @classmethod
    def of(cls, options: dict[str, Any]) -> Options:
        """Return options that were checked."""
        names = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            if name not in names:
                near = difflib.get_close_matches(str(name), names) or names
                raise ValueError(f"{name!r} is no option of this backend: use {' or '.join(near)}")
        return cls(**options)

    @property
    def alias(self) -> str:
        """The alias of the database."""
        return str(self.database or given("OUTBOX") or DEFAULT_DB_ALIAS)

    @property
    def way(self) -> str:
        """When a task of a transaction is sent."""
        return self.send or ("commit" if given("OUTBOX") is None else "outbox")
