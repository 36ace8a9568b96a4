"""Joining: where a replica goes on, and whether its log and that of the primary are the same.

The protocol compares nothing. So a replica asks for its own last record once more, and compares what comes byte by byte
with what it has. It appends nothing before all of it was the same. Two logs that are the same there are the same below:
a record has its place, its times and the unique id of its message in it. Every stock primary allows this. Two of ours
compare their epochs first (:func:`check_lineage`), which says where the logs part.

A stock primary gives an empty replica its last file alone, which report 0 means. To get the first file, too, an empty
replica asks for byte 1: byte 0 is the upper one of the first record's size, and 0.
"""

from __future__ import annotations

from typing import Final

from rmqclient.errors import ConfigMismatch, FrameError, LogsDiffer
from rmqclient.replication.asking.broker_client import LogShape
from rmqclient.replication.frames import Frame
from rmqclient.replication.handshake import Hello
from rmqclient.store.append.replica_log import ReplicaLog
from rmqclient.store.settings.lineage import common_end
from rmqclient.store.settings.replica_mark import Kind

_BYTE_0: Final = b"\0"
_FROM_THE_BEGIN: Final = 1


def check_lineage(own: Hello, theirs: Hello) -> None:
    """Raise LogsDiffer when a replica cannot go on behind its end with what a primary has, by their epochs.

    Raises ConnectionError for a primary that another one replaced: it may be replaced at that address, too.
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
    """The begin of one connection to a primary. ``shape`` is None when the primary's broker did not answer.

    Raises LogsDiffer and ConfigMismatch when the logs cannot be the same.
    """

    def __init__(self, log: ReplicaLog, file_bytes: int, shape: LogShape | None) -> None:
        self._log = log
        self._file_bytes = file_bytes
        self.asked = self._first(shape) if log.is_empty else log.last_record()
        """The first report: where the primary shall begin."""
        self._next = self.asked
        self._is_met = False
        if shape is not None:
            self._check(shape)

    @property
    def is_done(self) -> bool:
        """Whether what comes next is new."""
        return self._next >= self._log.end

    @property
    def has_begun(self) -> bool:
        """Whether anything of what was asked for has come."""
        return self._next > self.asked

    def take(self, frame: Frame) -> bytes:
        """Compare what the replica has; return what is new. Raises LogsDiffer, FrameError for a gap in the stream."""
        if self._log.is_empty and not self._is_met:
            return self._begin(frame) if frame.content else b""
        if frame.offset != self._next:
            raise FrameError(f"byte {self._next} of the primary's log comes next, it sent byte {frame.offset}")
        known = max(0, min(len(frame.content), self._log.end - self._next))
        self._compare(frame.content[:known])
        self._next += len(frame.content)
        return frame.content[known:]

    def _begin(self, frame: Frame) -> bytes:
        """Let the empty log begin where the primary does."""
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
        """Return what an empty replica asks for: all that there is."""
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
