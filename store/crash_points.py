"""Named places at which a test makes the process die, one for each step of a protocol between processes.

The kernel reaches those of the append, the acknowledgement and an index slot, Python reaches the others. A test kills a
child at every member; a member that no scenario reaches is a failing test.
"""

from __future__ import annotations

import enum
import os
import signal

from rmqclient.store.kernel import _kernel


@enum.unique
class CrashPoint(enum.IntEnum):
    """Numbers are shared with the kernel."""

    APPEND_LOCKED = 1  #: mutex held, nothing announced
    APPEND_ANNOUNCED = 2  #: ``written_to`` and the stage say that bytes will be copied
    BLANK_WRITTEN = 3  #: the old file ends with a blank record, the new one is empty
    RECORD_HALF_COPIED = 4  #: a part of the first record stands above ``published_to``
    RECORDS_COPIED = 5  #: every record is whole, the stage still says copying
    RECORDS_ANNOUNCED = 6  #: the stage says that the entries are due, none is written
    ENTRY_HALF_WRITTEN = 7  #: the offset of an entry stands, its size is still zero
    ENTRIES_WRITTEN = 8  #: every entry is whole, ``published_to`` not advanced
    RECORDS_PUBLISHED = 9  #: ``published_to`` advanced, the queue's max offset not
    QUEUE_PUBLISHED = 10  #: the queue's max offset advanced, the stage not idle again
    APPEND_FINISHED = 11  #: mutex released, sleepers not woken

    PROGRESS_ADVANCED = 12  #: a delivered message counts in its delay level, the stage not idle again

    OTHER_QUEUE_PUBLISHED = 13  #: of an append to two queues both max offsets advanced, the stage not idle again

    ACK_LOCKED = 20  #: mutex of the group-queue held, nothing changed
    ACK_MARKED = 21  #: the bit of the message is set
    ACK_ADVANCING = 22  #: ``advance_to`` is set, the bits it passes are not cleared
    ACK_CLEARED = 23  #: the bits are cleared, ``committed_offset`` not moved
    ACK_FINISHED = 24  #: mutex released

    SEEK_FENCED = 25  #: the epoch is raised and the owner gone, nothing is moved
    SEEK_ANNOUNCED = 26  #: ``seek_to`` says where the group goes, nothing is moved
    SEEK_CLEARED = 27  #: the bitmap is clear, the committed offset is the old one
    SEEK_HALF_MOVED = 28  #: ``advance_to`` is the new position, the committed offset the old one
    GROUP_SLOT_FILLED = 29  #: a slot of a new group is filled, those of its other queues are not, none is counted

    INDEX_SLOT_WRITTEN = 30  #: a slot points to an index entry that is not counted yet
    INDEX_FILE_FULL = 31  #: a full index file is on disk, its successor not made
    INDEX_WRITTEN = 32  #: index entries are written, ``indexed_to`` not advanced

    REPAIR_STARTED = 40  #: the next owner of the append mutex found an append under way
    REPAIR_ZEROED = 41  #: bytes above ``published_to`` are zeroed, the stage not idle again
    REPAIR_ENTRY_WRITTEN = 42  #: an entry of a whole record was written by the repair
    FILE_ALLOCATED = 43  #: the next file exists under its own name, nobody has mapped it
    FLUSH_SYNCED = 44  #: ``fdatasync`` returned, ``flushed_to`` not advanced
    OFFSETS_TEMPORARY = 45  #: the new ``consumerOffset.json`` stands beside the old one
    DELAY_OFFSETS_TEMPORARY = 50  #: the new ``delayOffset.json`` stands beside the old one
    RECOVERY_PLANNED = 46  #: recovery knows what to do and did nothing
    RECOVERY_TAIL_CUT = 47  #: the torn tail is zeroed, consume queues not yet right
    RECOVERY_APPLIED = 48  #: all is done, the runtime file is not built
    CLOSE_CHECKPOINTED = 49  #: the checkpoint is written, ``abort`` still there

    HALF_PASSED = 70  #: a half message is passed over, renewed or given up; the committed offset not moved
    OPERATION_FOUND = 71  #: a committed message without its operation record was found, the record is not written
    TRANSACTIONS_SETTLED = 72  #: all such records are written, the runtime file does not say so

    TIMER_CLEARING = 90  #: ``clearing_to`` says which bits of the timer will be cleared, they are not
    TIMER_CLEARED = 91  #: they are clear, ``done_to`` not moved
    TIMER_DONE_TEMPORARY = 92  #: the new ``timer.done`` stands beside the old one

    OUTBOX_CLAIMED = 80  #: rows of an outbox are claimed, none is sent
    OUTBOX_SENT = 81  #: they are sent, the database does not say so

    ONCE_NOT_FOUND = 100  #: the key of a send is locked and nobody's yet, its message not appended
    INBOX_MARKED = 101  #: a message is in the inbox, its handler's own changes are not made, nothing is committed
    INBOX_HANDLED = 102  #: both are made, nothing is committed
    INBOX_COMMITTED = 103  #: both are committed, the message is not acknowledged
    CRON_CALLED = 82  #: the message of a tick is made, and not sent
    CRON_SENT = 83  #: it is sent, the lock of its schedule held

    RETENTION_ADVANCED = 60  #: the log's minimum is above a file that is still there
    RETENTION_FILE_REMOVED = 61  #: the file is gone, the minimum of the queues is not raised
    RETENTION_QUEUE_ADVANCED = 62  #: the minimum of a queue is raised, its old files are there
    RETENTION_QUEUE_FILE_REMOVED = 63  #: one of them is gone, others are not
    RETENTION_INDEX_FILE_REMOVED = 64  #: an old index file is gone, others are not

    COMPACTION_HALF_WRITTEN = 110  #: some records of the new compacted file are written, beside the old one
    COMPACTION_WRITTEN = 111  #: all of it is written, not on the disk
    COMPACTION_SYNCED = 112  #: it is on the disk, the old one has its name
    COMPACTION_RENAMED = 113  #: the new one has its name, which a power cut may take back
    COMPACTION_DONE = 114  #: that is on the disk, too
    COMPACT_TOPIC_NAMED = 115  #: ``topics.json`` says that a topic is compact, its directory is not made


_armed: tuple[CrashPoint, int] | None = None
_passes = 0


def arm(point: CrashPoint, *, passes: int = 0, signal_number: int = signal.SIGKILL) -> None:
    """Make this process send itself ``signal_number`` at ``point``, after passing it ``passes`` times."""
    global _armed, _passes
    _armed, _passes = (point, signal_number), passes
    _kernel.arm(point, passes, signal_number)


def reach(point: CrashPoint) -> None:
    """Die here if a test armed this point."""
    global _passes
    if _armed is not None and _armed[0] is point:
        if _passes == 0:
            os.kill(os.getpid(), _armed[1])
        _passes -= 1
