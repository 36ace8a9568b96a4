"""Parts: what most folders of an open store share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rmqclient.store.config import StoreConfig
from rmqclient.store.files.file_lock import LockFile
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.log.consume_queue import ConsumeQueues
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.settings.topic_table import TopicTable


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Parts:
    """The settings, the runtime file and the files of one store, as one process has them open."""

    root: Path
    config: StoreConfig
    state: SharedState
    """The runtime file, which all processes share."""
    lock: LockFile
    topics: TopicTable
    log_files: FileQueue
    """The commit log."""
    consume_queues: ConsumeQueues
