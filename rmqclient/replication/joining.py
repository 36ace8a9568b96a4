"""Joining: the start offset of a replica, and the check that its log agrees with the primary's.

The stock protocol compares nothing. So a replica asks again for its own last record, and appends nothing before it has
compared all of its bytes. If two logs agree there, they agree below: a record contains its offset, its times and the
unique id of its message. Every stock primary allows this. Peers of this library compare their epochs first
(:func:`check_lineage`), which tell where the logs diverge.

Report 0 makes a stock primary send only its last file. To get all files, an empty replica asks for byte 1; byte 0 is
the upper byte of the first record's size, which is 0.
"""

from __future__ import annotations

from typing import Final

from rmqclient.errors import ConfigMismatch, FrameError, LogsDiffer
from rmqclient.replication.frames import Frame
from rmqclient.replication.handshake import Hello
from rmqclient.replication.primary_client.broker_client import LogShape
from rmqclient.store.append.replica_log import ReplicaLog
from rmqclient.store.settings.lineage import common_end
from rmqclient.store.settings.replica_mark import Kind

_BYTE_0: Final = b"\0"
_FROM_THE_BEGIN: Final = 1


def check_lineage(own: Hello, theirs: Hello) -> None:
    """Raise LogsDiffer if, by the epochs, a replica's log is not a prefix of the primary's.

    Raises ConnectionError for a primary that was replaced: the new one may come to that address, too.
    """
    if theirs.role == Kind.FENCED:
        raise ConnectionError(f"it is no longer a primary: another one has epoch {theirs.epoch}")
    if own.store_id and theirs.store_id and own.store_id != theirs.store_id:
        raise LogsDiffer(
            f"the primary is another store ({theirs.store_id}) than the one that this replica is a copy of "
            f"({own.store_id}). Nothing was changed"
        )
    if own.lineage.newest > theirs.lineage.newest:
        raise LogsDiffer(
            f"this replica knows epoch {own.lineage.newest}, and the primary has epoch {theirs.lineage.newest} only: "
            "it is an older one. Nothing was changed. If a promotion of this replica was cut short, promote it again"
        )
    if own.epochs and own.end > own.begin:
        common = common_end(own.lineage.epochs, own.end, theirs.lineage.epochs, theirs.end)
        if common is None or common < own.end:
            where = "nowhere" if common is None else f"up to byte {common}"
            raise LogsDiffer(
                f"this replica, which ends at {own.end}, and its primary, which ends at {theirs.end}, are the same "
                f"{where}. Nothing was changed; `rmq replica rejoin` shows what is here only, and puts it aside"
            )


class Joining:
    """The start of one connection to a primary. ``shape`` is None if the primary's broker did not answer.

    Raises LogsDiffer and ConfigMismatch if the logs cannot agree.
    """

    def __init__(self, log: ReplicaLog, file_bytes: int, shape: LogShape | None) -> None:
        self._log = log
        self._file_bytes = file_bytes
        self.asked = self._first(shape) if log.is_empty else log.last_record()
        """The first report: the start offset."""
        self._next = self.asked
        self._is_met = False
        if shape is not None:
            self._check(shape)

    @property
    def is_done(self) -> bool:
        """Whether the comparison is complete."""
        return self._next >= self._log.end

    @property
    def has_begun(self) -> bool:
        """Whether any of the requested bytes have come."""
        return self._next > self.asked

    def take(self, frame: Frame) -> bytes:
        """Compare bytes that the replica has, and return new ones. Raises LogsDiffer, FrameError for a gap."""
        if self._log.is_empty and not self._is_met:
            return self._begin(frame) if frame.content else b""
        if frame.offset != self._next:
            raise FrameError(f"byte {self._next} of the primary's log comes next, it sent byte {frame.offset}")
        known = max(0, min(len(frame.content), self._log.end - self._next))
        self._compare(frame.content[:known])
        self._next += len(frame.content)
        return frame.content[known:]

    def _begin(self, frame: Frame) -> bytes:
        """Set the begin of the empty log to the primary's."""
        self._is_met = True
        self._next = frame.offset + len(frame.content)
        if frame.offset == self.asked == _FROM_THE_BEGIN:
            return _BYTE_0 + frame.content
        if frame.offset % self._file_bytes:
            raise LogsDiffer(
                f"the primary begins at byte {frame.offset}, which is not the first of a file of {self._file_bytes}: "
                "an empty replica can begin with a whole file only"
            )
        self._log.begin_at(frame.offset)
        return frame.content

    def _compare(self, content: bytes) -> None:
        at = self._next
        while content:
            own = self._log.read(at, len(content))
            if own != content[: len(own)]:
                where = at + next(number for number, byte in enumerate(own) if byte != content[number])
                raise LogsDiffer(
                    f"this replica and its primary differ at byte {where} of the log: the replica, which ends at "
                    f"{self._log.end}, has messages that the primary has not, or of another store. Nothing was changed"
                )
            at, content = at + len(own), content[len(own) :]

    def _first(self, shape: LogShape | None) -> int:
        """Return the first report of an empty replica, which asks for the whole log."""
        if shape is None or shape.end <= self._file_bytes:
            return 0
        return shape.begin - shape.begin % self._file_bytes or _FROM_THE_BEGIN

    def _check(self, shape: LogShape) -> None:
        theirs = shape.settings.commit_log_file_bytes
        if theirs != self._file_bytes:
            raise ConfigMismatch(
                f"the commit log files of the primary have {theirs} bytes, those of this replica {self._file_bytes}: "
                "make a new directory for the replica"
            )
        if shape.end < self._log.end:
            raise LogsDiffer(
                f"the log of the primary ends at {shape.end}, that of this replica at {self._log.end}: the primary has "
                "lost messages that were here, or is another one. Nothing was changed"
            )
        if not self._log.is_empty and self.asked < shape.begin:
            raise LogsDiffer(
                f"the primary has removed its log below {shape.begin}, and this replica ends at {self._log.end}: the "
                "bytes between are nowhere. Make a new directory for the replica"
            )
