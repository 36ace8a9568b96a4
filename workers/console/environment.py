"""The environment variables of ``rmq``. No other file of the command names one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

PREFIX = "RMQ"
"""Every option is also a variable: ``RMQ_RUN_PROCESSES`` stands for ``rmq run --processes``."""

CONFIG = "RMQ_CONFIG"
"""The file of settings, instead of the one that is found."""

STORE = "RMQ_STORE"
"""The directory of the store, or the URL of a cluster, for every command with ``--store`` and for an App."""

STATE = "RMQ_STATE_DIR"
"""The directory of what members of a cluster's groups keep on this host."""

_OF_EVERY_COMMAND = (CONFIG, STORE, STATE)
_OF_A_SERVICE = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$")
"""What Kubernetes and Docker tell each container of a service, whose name may begin as a command of ours."""


def begin(words: Iterable[str]) -> str:
    """Return how the variables of a command begin: ``RMQ_GROUP_SEEK`` for ``("group", "seek")``."""
    return "_".join([PREFIX, *words]).upper().replace("-", "_")


def unread(command: str, variables: Iterable[str], commands: Iterable[str]) -> Iterator[str]:
    """Tell which variables look like those of a command, or of every command, and are not read: a name misspelled.

    ``variables`` are all that the command reads. Those of other ``commands`` are theirs to tell.
    """
    known = {*variables, *_OF_EVERY_COMMAND}
    ours, others = f"{begin([command])}_", tuple(f"{begin([each])}_" for each in commands if each != command)
    for name in sorted(os.environ):
        if name.startswith(f"{PREFIX}_") and name not in known and not _OF_A_SERVICE.search(name):
            near = nearest(name, known)
            if name.startswith(ours) or (near and not name.startswith(others)):
                yield f"no option reads the variable {name}" + (f": is {near} meant?" if near else "")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that this one may be meant for; empty without one."""
    import difflib  # noqa: PLC0415 - for a misspelled name alone

    return next(iter(difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.85)), "")
