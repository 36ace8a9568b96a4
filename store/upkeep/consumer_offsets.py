"""Consumer offsets: ``consumerOffset.json``, which keeps the committed offsets of all groups for good."""

from __future__ import annotations

from collections.abc import Collection

from rmqclient.store.files.file_lock import TOPIC_BYTE
from rmqclient.store.parts import Parts
from rmqclient.store.runtime.group_table import GroupTable
from rmqclient.store.settings import config_file


class ConsumerOffsets:
    """Writes the file from the group-queue table."""

    def __init__(self, parts: Parts, groups: GroupTable) -> None:
        self._root = parts.root
        self._state = parts.state
        self._lock = parts.lock
        self._topics = parts.topics
        self._groups = groups

    def persist(self, forgotten: Collection[str] = ()) -> None:
        """Write the file, unless there is no group yet, and take forgotten groups out of it.

        Raises StoreBusy, StoreFull, DiskFailed.
        """
        with self._lock.held(TOPIC_BYTE):
            table: dict[tuple[str, str], dict[int, int]] = {}
            for slot in self._groups:
                queue = self._topics.queue(slot.queue_slot)
                table.setdefault((queue.topic, slot.group), {})[queue.queue_id] = slot.committed_offset
            if table or forgotten:
                self._state.offsets_digest = config_file.write_consumer_offsets(
                    self._root, table, self._announce, forgotten
                )

    def _announce(self, digest: int) -> None:
        # The process that wrote the file last may have died before it could record the digest.
        self._state.offsets_digest = config_file.consumer_offsets_digest(self._root)
        self._state.offsets_digest_next = digest
