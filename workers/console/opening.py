"""Opening a store or a cluster for one command, and the error when that fails."""

# ruff: noqa: PLC0415 - the store is imported when one is opened: help is quick

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rmqclient.place import scheme_of, shown

if TYPE_CHECKING:
    from rmqclient.admin import Admin
    from rmqclient.backend.backend import Backend
    from rmqclient.consuming.reader import Reader
    from rmqclient.opening import MessageStore

T = TypeVar("T")


class StoreCannotBeOpened(Exception):
    """The store or the cluster cannot be opened or read, for any reason: exit code 3."""


@contextlib.contextmanager
def opening(root: Path | str, make: Callable[[], contextlib.AbstractContextManager[T]]) -> Iterator[T]:
    """Enter what ``make`` returns. Raises StoreCannotBeOpened for an error until then; later errors pass unchanged."""
    from rmqclient.errors import NotOnCluster, QueueError

    kind = "cluster" if scheme_of(root) else "store"
    with contextlib.ExitStack() as stack:
        try:
            opened = stack.enter_context(make())
        except NotOnCluster:
            raise
        except (QueueError, OSError) as error:
            raise StoreCannotBeOpened(f"cannot open the {kind} {shown(root)}: {one_line(error)}") from error
        yield opened


@contextlib.contextmanager
def opened_backend(root: Path | str, *, create: bool = False) -> Iterator[Backend]:
    """Open a store, which must be there without ``create``, or a cluster, for one command. Raises as :func:`opening`.

    The command does not become the housekeeper of the store, not even for a moment.
    """
    from rmqclient.opening import open_backend

    with opening(root, lambda: contextlib.closing(open_backend(root, create=create, housekeeping=False))) as backend:
        yield backend


@contextlib.contextmanager
def opened_admin(root: Path | str, *, create: bool = False) -> Iterator[Admin]:
    """Open a store or a cluster for one command that shows or changes topics and groups. Raises as :func:`opening`."""
    from rmqclient.admin import Admin

    with opened_backend(root, create=create) as backend:
        yield Admin(backend)


@contextlib.contextmanager
def opened_reader(root: Path | str) -> Iterator[Reader]:
    """Open a store or a cluster for one command that reads messages. Raises as :func:`opening`."""
    from rmqclient.consuming.reader import Reader

    with opened_backend(root) as backend:
        yield Reader(backend)


@contextlib.contextmanager
def opened_store(root: Path | str, what: str) -> Iterator[MessageStore]:
    """Open a store of this host, for ``what`` only its files tell, a plural. Raises NotOnCluster, and as `opening`."""
    from rmqclient.opening import open_local_store

    with opening(root, lambda: open_local_store(root, what, housekeeping=False)) as store:
        yield store


def one_line(error: BaseException) -> str:
    """Return the text of an error on one line, or the name of its kind if it has no text."""
    return " ".join(str(error).split()) or type(error).__name__
