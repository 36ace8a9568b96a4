"""Options of a write, parsed and checked once.

=============  =========  ==========================================================================================
option         default    meaning
=============  =========  ==========================================================================================
path           required   directory of the store, made if it does not exist: ``.save("./store")``; or the URL of a
                          cluster, ``rocketmq://host:9876``
topic          column     topic of every row; overrides the column ``topic``
txnAppId       query id   name under which the batches of a topic are remembered. A new query, or another run of a
                          batch job, with the same name adds no batch twice. 1 to 127 of the characters
                          ``% a-z A-Z 0-9 _ -``
txnVersion     none       number of a batch write under that name, named as in Delta; not for a stream, which numbers
                          its batches itself
flush          commit     ``commit``: rows are on the disk when the batch is committed. ``none``: rows are in the page
                          cache, survive any kill, and survive a power cut once the store has flushed them. Not for
                          a cluster, whose brokers have a setting for it
producerGroup  see note   cluster only: group under which brokers are asked; ``rmqclient-spark``
=============  =========  ==========================================================================================
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rmqclient.names import check_group, check_topic
from rmqclient.place import CLUSTER_SCHEME, check_scheme, scheme_of

_NAMES = ("path", "topic", "txnAppId", "txnVersion", "flush", "producerGroup")
_KNOWN = {name.lower(): name for name in _NAMES}
_OF_SPARK = frozenset(("checkpointlocation", "queryname"))
_OF_KAFKA = re.compile(r"kafka\..*", re.IGNORECASE)


DEFAULT_GROUP = "rmqclient-spark"


@dataclass(frozen=True)
class WriteOptions:
    """Checked options of one write to a store. Made by :func:`parse`."""

    root: Path
    topic: str | None = None
    application: str | None = None
    version: int | None = None
    flush: bool = True
    checkpoint: str | None = None
    """Where a stream notes its batches, if an option says so and not a setting of the session."""


@dataclass(frozen=True)
class ClusterWriteOptions:
    """Checked options of one write to a cluster. Made by :func:`parse_for_cluster`."""

    url: str
    topic: str | None = None
    application: str | None = None
    version: int | None = None
    group: str = DEFAULT_GROUP


def keys_of(application: str, topic: str | None) -> str:
    """Return what the unique keys of rows are made of, besides batch, part and row; two topics have none in common."""
    return application if topic is None else f"{application}/{topic}"


def is_for_cluster(given: Mapping[str, str]) -> bool:
    """Return whether the options name a cluster."""
    return any(name.lower() == "path" and scheme_of(value) == CLUSTER_SCHEME for name, value in given.items())


def parse_for_cluster(given: Mapping[str, str], *, streaming: bool) -> ClusterWriteOptions:
    """Return the options of a write to a cluster; as :func:`parse`."""
    options = _own(given)
    if "flush" in options:
        raise ValueError("option flush: the brokers of a cluster have a setting for it, flushDiskType; leave it out")
    topic, application, version = _common(options, streaming=streaming)
    group = check_group(options.get("producergroup", DEFAULT_GROUP))
    return ClusterWriteOptions(options["path"], topic, application, version, group)


def parse(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Return the options of a write to a store. Names may be in any case; options ``kafka.*`` do nothing.

    Raises ValueError, InvalidName.
    """
    options = _own(given)
    if not options.get("path"):
        how = '.start("./store")' if streaming else '.save("./store")'
        raise ValueError(f"option path is missing: give the directory of the store: {how}")
    if "producergroup" in options:
        raise ValueError("option producerGroup: only a cluster has it: save('rocketmq://host:9876')")
    topic, application, version = _common(options, streaming=streaming)
    path = options["path"].removeprefix("file://").removeprefix("file:")
    if scheme_of(path):
        check_scheme(path)
    root = Path(path).absolute()
    flush, checkpoint = _flush(options.get("flush", "commit")), options.get("checkpointlocation")
    return WriteOptions(root, topic, application, version, flush, checkpoint and _absolute(checkpoint))


def _absolute(path: str) -> str:
    path = path.removeprefix("file://").removeprefix("file:")
    return path if "://" in path else str(Path(path).absolute())


def _own(given: Mapping[str, str]) -> dict[str, str]:
    options = {name.lower(): value for name, value in given.items() if not _OF_KAFKA.fullmatch(name)}
    _check_names(options)
    return options


def _common(options: Mapping[str, str], *, streaming: bool) -> tuple[str | None, str | None, int | None]:
    """Return topic, application and version. Raises ValueError, InvalidName."""
    application = options.get("txnappid")
    topic = options.get("topic")
    return (
        None if topic is None else check_topic(topic),
        None if application is None else check_group(application),
        _version(options.get("txnversion"), application, streaming=streaming),
    )


def _check_names(options: Mapping[str, str]) -> None:
    for name in options:
        if name not in _KNOWN and name not in _OF_SPARK:
            near = difflib.get_close_matches(name, _KNOWN, 1)
            meant = f"; did you mean {_KNOWN[near[0]]}?" if near else f"; the options are {', '.join(_NAMES)}"
            raise ValueError(f"option {name}: a write to rmq has no option of this name{meant}")


def _version(text: str | None, application: str | None, *, streaming: bool) -> int | None:
    if streaming:
        if text is not None:
            raise ValueError(f"option txnVersion={text}: a stream numbers its batches itself: leave the option out")
        return None
    if (text is None) != (application is None):
        missing, given = ("txnVersion", "txnAppId") if text is None else ("txnAppId", "txnVersion")
        raise ValueError(f"option {missing} is missing beside {given}: a batch write needs both of them, or neither")
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ValueError(f"option txnVersion={text}: give a whole number from 0 to 999999999999999999")
    return int(text)


def _flush(text: str) -> bool:
    if text.lower() not in {"commit", "none"}:
        raise ValueError(f"option flush={text}: give commit or none")
    return text.lower() == "commit"
