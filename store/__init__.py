"""The durable log: RocketMQ 4.9's files, shared by the processes of one host.

=============  =====================================================================================================
``kernel``     the compiled part: appends, grants, acknowledgements, and every loop over bytes
``files``      what a store lies on: mapped files, rows of files, byte locks
``log``        the messages: records, commit log, consume queues, index
``settings``   what a store keeps beside the messages: settings, topics, offsets, the checkpoint
``runtime``    what processes share while they run: groups, members, running messages, workers, bells
``append``     what an append needs around the kernel
``upkeep``     the housekeeper's work: flushing, retention, compaction
``waiting``    messages that wait: for a time, for a decision, or for being the only one of their key
``recovery``   from a directory that was left anyhow to a store that can be used
``inspect``    a store read without locks: views, dumps, invariants
``handles``    what producers and consumers hold: appenders and grants
``observe``    what the processes share, read in one look and summed up by group, without the kernel
=============  =====================================================================================================

``wire`` reads records that a broker sent, and writes what a client sends to it.
:func:`open_store` opens a directory, and returns the record of its parts: a :class:`MessageStore`.
:mod:`rmqclient.store.layout` declares every layout of bytes, once. Other packages use the names that
:mod:`rmqclient.store.exports` lists, which are names of this package, and single names of the rooms that read messages
and files. Of ``runtime`` they use only what stands there; the client's local backend may use more.

The names are loaded when the first of them is asked for: ``rmq check``, a new process each time, imports ``observe``
and not the kernel.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqclient.store.exports import *  # noqa: F403
else:

    def __getattr__(name):
        if not name.startswith("__") and find_spec(f"{__name__}.{name}") is None:  # a room is imported without the rest
            exports = import_module("rmqclient.store.exports")
            globals().update({each: getattr(exports, each) for each in exports.__all__})
            if name in exports.__all__:
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
