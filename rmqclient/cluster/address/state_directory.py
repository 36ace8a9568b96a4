"""State directory: state of this host that a cluster cannot keep.

It has the offsets of broadcast handlers, the journals of running messages, and the heartbeats of supervised workers.
Losing it loses no message.
"""

from __future__ import annotations

import fcntl
import os
import urllib.parse
from collections.abc import Sequence
from pathlib import Path

STATE_VARIABLE = "RMQ_STATE_DIR"
"""Environment variable that names the directory."""


def state_directory() -> Path:
    """Return ``$RMQ_STATE_DIR``, or ``rmqclient`` in ``$XDG_STATE_HOME``, which is ``~/.local/state`` by default."""
    named = os.environ.get(STATE_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "rmqclient"


def cluster_directory(kind: str, name_servers: Sequence[str]) -> Path:
    """Return a cluster's directory for one kind of state. The order of the name servers does not matter."""
    return state_directory() / kind / urllib.parse.quote("+".join(sorted(name_servers)), safe="+:")


def is_locked(path: Path) -> bool:
    """Tell whether a process has locked a file."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
