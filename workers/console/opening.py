"""Opening a store for one command, and the error when that fails."""

# ruff: noqa: PLC0415 - the store is imported when one is opened: help is quick

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class StoreCannotBeOpened(Exception):
    """The store cannot be opened or read, for any reason: exit code 3."""


@contextlib.contextmanager
def opening(root: Path, make: Callable[[], contextlib.AbstractContextManager[T]]) -> Iterator[T]:
    """Enter what ``make`` returns. Raises StoreCannotBeOpened for an error until then; later errors pass unchanged."""
    from rmqclient.errors import QueueError

    with contextlib.ExitStack() as stack:
        try:
            opened = stack.enter_context(make())
        except (QueueError, OSError) as error:
            raise StoreCannotBeOpened(f"cannot open the store {root}: {one_line(error)}") from error
        yield opened


def one_line(error: BaseException) -> str:
    """Return the text of an error on one line, or the name of its kind if it has no text."""
    return " ".join(str(error).split()) or type(error).__name__
