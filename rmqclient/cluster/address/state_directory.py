"""State directory: where this host keeps what a cluster cannot keep for it.

It has the offsets of broadcast handlers, the journals of what worker processes run, and the heartbeats of supervised
workers. Nothing in it is needed to find a message again.
"""

from __future__ import annotations

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
    """Return the directory of one kind of things of a cluster. The order of the name servers does not matter."""
    return state_directory() / kind / urllib.parse.quote("+".join(sorted(name_servers)), safe="+:")
