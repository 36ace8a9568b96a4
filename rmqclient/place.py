"""Place: how a user names where messages are kept. A directory is a path; a cluster is a URL, which stays text.

=============================  =============================================
``./store``                    a directory of this host
``rocketmq://host:9876``       a RocketMQ cluster, by its name servers
=============================  =============================================

This module imports nothing else, so that the command line can read its options before it opens anything.
"""

from __future__ import annotations

import re
from pathlib import Path

CLUSTER_SCHEME = "rocketmq"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_USER = re.compile(r"//[^/?@]*@")


def scheme_of(place: object) -> str | None:
    """Return the scheme of a URL in lower case; None for a path, and for text that is none."""
    found = _SCHEME.match(place) if isinstance(place, str) else None
    return found and found[1].lower()


def located(name: str) -> Path | str:
    """Return a URL as it is, and any other name as the absolute path of a directory, which need not exist.

    Raises ValueError for a URL of another scheme.
    """
    if scheme_of(name):
        check_scheme(name)
        return name
    return Path(name).expanduser().absolute()


def check_scheme(url: str) -> None:
    """Raise ValueError for a URL that is not of a cluster."""
    if scheme_of(url) != CLUSTER_SCHEME:
        raise ValueError(
            f"{shown(url)!r}: no backend is known for the scheme {scheme_of(url)!r}; give the directory of a store on "
            f"this host, such as './store', or the URL of a cluster, such as '{CLUSTER_SCHEME}://127.0.0.1:9876'"
        )


def shown(place: object) -> str:
    """Return a place for people: a URL is shown without its access key and its secret."""
    return _USER.sub("//", str(place), count=1)
