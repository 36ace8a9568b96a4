"""Crash points: named places at which a test makes the process die, one for each step of a protocol between processes.

The kernel reaches the points of the append, the acknowledgement and an index slot; Python reaches the others. A test
kills a child process at every point, and fails for a point that no scenario reaches.
"""

from __future__ import annotations

import enum
import signal

from rmqclient.store.kernel import _kernel


@enum.unique
class CrashPoint(enum.IntEnum):
    """Numbers are shared with the kernel."""

    APPEND_LOCKED = 1  #: the mutex is held, nothing is announced
    APPEND_ANNOUNCED = 2  #: ``written_to`` and the stage say that bytes will be copied
    BLANK_WRITTEN = 3  #: the old file ends with a blank record, the new file is empty
    RECORD_HALF_COPIED = 4  #: a part of the first record stands above ``published_to``
    RECORDS_COPIED = 5  #: every record is whole, the stage still says copying
    RECORDS_ANNOUNCED = 6  #: the stage says that the entries are due, no entry is written
    ENTRY_HALF_WRITTEN = 7  #: the offset of an entry stands, its size is still zero
    ENTRIES_WRITTEN = 8  #: every entry is whole, ``published_to`` not advanced
    RECORDS_PUBLISHED = 9  #: ``published_to`` is advanced, the queue's max offset is not
    QUEUE_PUBLISHED = 10  #: the queue's max offset is advanced, the stage is not idle again
    APPEND_FINISHED = 11  #: the mutex is released, sleepers are not woken

    PROGRESS_ADVANCED = 12  #: a delivered message counts in its delay level, the stage is not idle again

    OTHER_QUEUE_PUBLISHED = 13  #: an append to two queues advanced both max offsets, the stage is not idle

    ACK_LOCKED = 20  #: the mutex of the group-queue is held, nothing is changed
    ACK_MARKED = 21  #: the bit of the message is set
    ACK_ADVANCING = 22  #: ``advance_to`` is set, the bits it passes are not cleared
    ACK_CLEARED = 23  #: the bits are cleared, ``committed_offset`` is not moved
    ACK_FINISHED = 24  #: the mutex is released

    SEEK_FENCED = 25  #: the epoch is raised and the owner is gone, nothing is moved
    SEEK_ANNOUNCED = 26  #: ``seek_to`` says where the group goes, nothing is moved
    SEEK_CLEARED = 27  #: the bitmap is clear, the committed offset is still the old one
    SEEK_HALF_MOVED = 28  #: ``advance_to`` is the new position, the committed offset is still the old one
    GROUP_SLOT_FILLED = 29  #: one slot of a new group is filled, its other slots are not, and no slot is counted

    INDEX_SLOT_WRITTEN = 30  #: a slot points to an index entry that is not counted yet
    INDEX_FILE_FULL = 31  #: a full index file is on disk, its successor is not made
    INDEX_WRITTEN = 32  #: index entries are written, ``indexed_to`` is not advanced

    COMMIT_HALF_BACK = 33  #: a commit moves the committed offset back, ``advance_to`` is still the old one

    REPAIR_STARTED = 40  #: the next owner of the append mutex found an append under way
    REPAIR_ZEROED = 41  #: bytes above ``published_to`` are zeroed, the stage is not idle again
    REPAIR_ENTRY_WRITTEN = 42  #: the repair wrote an entry of a whole record
    FILE_ALLOCATED = 43  #: the next file exists under its own name, no process has mapped it
    FLUSH_SYNCED = 44  #: ``fdatasync`` has returned, ``flushed_to`` is not advanced
    OFFSETS_TEMPORARY = 45  #: the new ``consumerOffset.json`` stands beside the old one
    DELAY_OFFSETS_TEMPORARY = 50  #: the new ``delayOffset.json`` stands beside the old one
    RECOVERY_PLANNED = 46  #: recovery has its plan and has done nothing
    RECOVERY_TAIL_CUT = 47  #: the torn tail is zeroed, consume queues are not yet right
    RECOVERY_APPLIED = 48  #: everything is done, the runtime file is not built
    CLOSE_CHECKPOINTED = 49  #: the checkpoint is written, ``abort`` is still there

    HALF_PASSED = 70  #: a half message is passed over, renewed or given up; the committed offset is not moved
    OPERATION_FOUND = 71  #: a committed message lacks its operation record, which is not written yet
    TRANSACTIONS_SETTLED = 72  #: all such records are written, the runtime file does not say so

    TIMER_CLEARING = 90  #: ``clearing_to`` says which bits of the timer will be cleared, no bit is cleared
    TIMER_CLEARED = 91  #: the bits are clear, ``done_to`` is not moved
    TIMER_DONE_TEMPORARY = 92  #: the new ``timer.done`` stands beside the old one

    OUTBOX_CLAIMED = 80  #: rows of an outbox are claimed, no row is sent
    OUTBOX_SENT = 81  #: the rows are sent, the database does not say so

    ONCE_NOT_FOUND = 100  #: the key of a send is locked and unused, its message is not appended
    INBOX_MARKED = 101  #: a message is in the inbox, its handler has changed nothing, nothing is committed
    INBOX_HANDLED = 102  #: the handler has made its changes too, nothing is committed
    INBOX_COMMITTED = 103  #: inbox and changes are committed, the message is not acknowledged
    CRON_CALLED = 82  #: the message of a tick is made and not sent
    CRON_SENT = 83  #: the message is sent, the lock of its schedule is held

    RETENTION_ADVANCED = 60  #: the log's minimum is above a file that is still there
    RETENTION_FILE_REMOVED = 61  #: the file is gone, the minimum of the queues is not raised
    RETENTION_QUEUE_ADVANCED = 62  #: the minimum of a queue is raised, its old files are still there
    RETENTION_QUEUE_FILE_REMOVED = 63  #: one old file of the queue is gone, others are not
    RETENTION_INDEX_FILE_REMOVED = 64  #: an old index file is gone, others are not

    COMPACTION_HALF_WRITTEN = 110  #: some records of the new compacted file are written, beside the old one
    COMPACTION_WRITTEN = 111  #: the new file is written, and not on the disk
    COMPACTION_SYNCED = 112  #: the new file is on the disk, the old file has the name
    COMPACTION_RENAMED = 113  #: the new file has the name, which a power cut may take back
    COMPACTION_DONE = 114  #: the name is on the disk, too
    COMPACT_TOPIC_NAMED = 115  #: ``topics.json`` says that a topic is compact, its directory is not made

    REPLICA_ENTRIES_WRITTEN = 120  #: a replica has the entries of records that it has not copied yet
    REPLICA_HALF_COPIED = 121  #: a part of the primary's records stands above ``published_to``
    REPLICA_ANNOUNCED = 122  #: the records are copied, and the stage says that they are to be published
    REPLICA_PUBLISHED = 123  #: ``published_to`` is advanced, the max offsets of the queues are not
    REPLICATION_TEMPORARY = 124  #: the new ``replication.json`` stands beside the old one
    MISSING_NOTED = 125  #: it says that followers lack messages, the shared word does not, nothing is answered
    REPLICATED_SAID = 126  #: the shared word says how far followers are, senders are not woken
    CUT_ANNOUNCED = 127  #: the mark says where the log is cut, nothing is cut
    CUT_HALF_ZEROED = 128  #: files behind the cut are gone, its own file is not zeroed
    CUT_ZEROED = 129  #: the bytes behind the cut are gone, the mark still says that they are to be
    PROMOTION_EPOCH_WRITTEN = 130  #: the new epoch is on the disk, the store is still a replica
    FENCE_NOTED = 131  #: the mark of a fence is on the disk, the word that appends read does not say so

    HISTORY_HALF_WRITTEN = 140  #: a part of the next record of a ring stands, the head does not count it
    HISTORY_APPENDED = 141  #: the next records of the rings are whole, the head does not count them
    HISTORY_HEAD_HALF_WRITTEN = 142  #: a part of the next head stands, the other head counts
    HISTORY_WRITTEN = 143  #: the next head counts the records


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
            signal.raise_signal(_armed[1])  # for this thread: it goes no step further
        _passes -= 1
