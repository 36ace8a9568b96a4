"""Wipe: an empty store in the place of one that is used for development.

Only what a store consists of is removed; other files of the directory stay. A store that somebody has open is refused,
and so is one that neither ``rmq dev`` has made nor anybody has named.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import Counter
from pathlib import Path

from rmqclient.names import DEAD_LETTER_PREFIX, group_and_member, is_of_application
from rmqclient.opening import open_local_store
from rmqclient.place import scheme_of, shown
from rmqclient.store.errors import StoreInUse
from rmqclient.store.files.sharing import open_for_owner
from rmqclient.store.observe.sampler import Sampler
from rmqclient.store.recovery.contents import is_store, own_files
from rmqclient.store.repair import check_nobody_has_it_open

MARK = ".made-by-rmq-dev"
"""The file that says of a store that ``rmq dev`` has made it."""


class WipeRefused(Exception):
    """A store was not wiped. The text says what to do."""


def mark(root: Path) -> None:
    """Say of a store that ``rmq dev`` has made it."""
    os.close(open_for_owner(str(root / MARK), os.O_WRONLY | os.O_CREAT))


def is_made_by_dev(root: Path) -> bool:
    """Tell whether ``rmq dev`` has made a store."""
    return (root / MARK).exists()


def wipe(place: Path | str, *, is_named: bool, is_sure: bool) -> str:
    """Remove a store, and return one line that says what it held.

    ``is_named`` says that a person has named this store for the wipe. A store that ``rmq dev`` has not made must be
    named, and ``is_sure`` is needed if it has messages that were not handled.

    Raises WipeRefused, and OSError.
    """
    root = Path(place)
    if scheme_of(str(place)):
        raise WipeRefused(f"{shown(place)} is a cluster: --wipe is for a directory")
    if not is_store(root):
        return f"nothing to wipe in {root}"
    if not is_named and not is_made_by_dev(root):
        raise WipeRefused(f"{root} was not made by rmq dev: to wipe it, name it with --store {root}")
    with contextlib.suppress(StoreInUse):
        held, left = _content(root)
        if left and not is_sure and not is_made_by_dev(root):
            raise WipeRefused(f"{root} has messages, {left}: add --yes to wipe it all the same")
        check_nobody_has_it_open(root)
        for path in (
            *own_files(root),
            root / MARK,
            root / "lock",
        ):  # the lock last: until then nobody makes a store
            _remove(path)
        return f"wiped {root}, with messages: {left or f'{held}, all handled'}"
    raise WipeRefused(f"{root} is open in another process: stop all that use it before it is wiped")


def _content(root: Path) -> tuple[int, str]:
    """Return how many messages a store has, and in words which were not handled; empty when all were."""
    with open_local_store(root, "messages", housekeeping=False), Sampler(root) as sampler:
        sample = sampler.sample()
    lag: Counter[str] = Counter()
    for each in sample.group_queues:
        lag[group_and_member(each.group)[0]] += each.lag - each.acknowledged_ahead
    held: Counter[str] = Counter()
    for queue, first, end, _ in sample.queues:
        held[queue.topic] += end - first
    read = {each.queue.topic for each in sample.group_queues}
    unread = sum(count for topic, count in held.items() if topic not in read and is_of_application(topic))
    letters = sum(count for topic, count in held.items() if topic.startswith(DEAD_LETTER_PREFIX))
    parts = [f"{count} that {group} has not handled" for group, count in lag.items() if count]
    others = (
        (unread, "that no group reads"),
        (sample.timer.waiting, "that wait for their time"),
        (letters, "dead letters"),
    )
    parts += [f"{count} {what}" for count, what in others if count]
    return sum(count for topic, count in held.items() if is_of_application(topic)), ", ".join(parts)


def _remove(path: Path) -> None:
    """Remove a file, or a directory that is empty; one that still has files of others stays."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    try:
        path.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
