"""Every on-disk and shared-memory layout, declared once.

Docstrings elsewhere show these tables, and a test compares them with the declarations here. The build writes them down
for the compiled kernel (``kernel/constants.py``); importing the kernel fails for one of another layout.

On-disk layouts are RocketMQ 4.9's and big-endian. Runtime layouts are native-endian, and every word is aligned to its
size, because another process could see an unaligned word half written.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Literal

ON_DISK: Literal[">"] = ">"
NATIVE: Literal["="] = "="


class Field:
    """One field: name, :mod:`struct` code, and what it means."""

    __slots__ = ("code", "meaning", "name", "size")

    def __init__(self, name: str, code: str, meaning: str) -> None:
        self.name, self.code, self.meaning = name, code, meaning
        self.size = struct.calcsize("=" + code)


class Layout:
    """Fields back to back, without padding. ``at[name]`` is the byte offset of a field."""

    def __init__(self, *fields: Field, order: Literal[">", "="] = ON_DISK) -> None:
        self.fields = fields
        self.at: dict[str, int] = {}
        position = 0
        for field in fields:
            self.at[field.name] = position
            position += field.size
        self.size = position
        self._struct = struct.Struct(order + "".join(field.code for field in fields))
        self.pack = self._struct.pack
        self.pack_into = self._struct.pack_into
        self.unpack_from = self._struct.unpack_from
        self.iter_unpack = self._struct.iter_unpack

    def read(self, buffer: Any, position: int = 0) -> dict[str, Any]:
        """Return the fields that stand at ``position``, by name."""
        return dict(zip(self.at, self._struct.unpack_from(buffer, position), strict=True))

    def table(self) -> str:
        """Return the table that the docstring of the owning module shows."""
        width = max(len(field.name) for field in self.fields)
        lines = [f"byte  size  {'field':<{width}}  meaning", f"----  ----  {'-' * width}  {'-' * 7}"]
        lines += [f"{self.at[f.name]:4}  {f.size:4}  {f.name:<{width}}  {f.meaning}" for f in self.fields]
        return "\n".join([*lines, "----  ----", f"{self.size:4}"])


# --- commit log -----------------------------------------------------------------------------------

RECORD_MAGIC = -626843481  # 0xDAA320A7, message version 1
BLANK_MAGIC = -875286124  # 0xCBD43194, end of file

RECORD_HEADER = Layout(
    Field("total_size", "i", "bytes of the whole record, this field included"),
    Field("magic", "i", "0xDAA320A7"),
    Field("body_crc", "i", "CRC-32 of the body, lower 31 bits; 0 when empty"),
    Field("queue_id", "i", "queue of the topic"),
    Field("flag", "i", "the application's own, opaque"),
    Field("queue_offset", "q", "number of the message within its queue"),
    Field("commit_log_offset", "q", "first byte of this record in the commit log"),
    Field("sys_flag", "i", "compression, transaction state, address kinds"),
    Field("born_timestamp", "q", "ms, the producer's clock"),
    Field("born_host", "4s", "IPv4 address of the producer"),
    Field("born_port", "i", "its port"),
    Field("store_timestamp", "q", "ms, taken under the append mutex"),
    Field("store_host", "4s", "IPv4 address of the store"),
    Field("store_port", "i", "its port"),
    Field("reconsume_times", "i", "delivery attempt - 1"),
    Field("prepared_transaction_offset", "q", "of the half message; 0 without a transaction"),
    Field("body_size", "i", "bytes of the body, which follows"),
)
"""Then: body, ``topic_size`` (1 byte), topic, ``properties_size`` (2 bytes), properties."""

FOUND = {
    "RECORD": 0,
    "BLANK": 1,
    "END": 2,
    "SHORT": 3,
    "BAD_MAGIC": 4,
    "BAD_SIZE": 5,
    "BAD_OFFSET": 6,
    "BAD_BODY_CRC": 7,
    "BAD_CRC": 8,
    "BAD_TOPIC": 9,
}
"""What can stand at a position of the log; :mod:`rmqclient.store.log.record` says what each of them is."""

RECORD_FIXED_SIZE = RECORD_HEADER.size + 1 + 2  #: a record with empty body, topic and properties
MAX_TOPIC_BYTES = 127
MAX_PROPERTIES_BYTES = 32_767
MAX_SENT_PROPERTIES_BYTES = 31_000  #: of a message that is sent: its copies have room for what later steps add
MAX_RECORD_OVERHEAD = RECORD_FIXED_SIZE + MAX_TOPIC_BYTES + MAX_PROPERTIES_BYTES

SYS_FLAG_COMPRESSED = 0x1
SYS_FLAG_BORN_HOST_V6 = 0x10
SYS_FLAG_STORE_HOST_V6 = 0x20

CRC_PROPERTY_SIZE = 20
"""``__CRC32#`` 0x01, ten digits (least significant first), 0x02; always the last property."""

BLANK_RECORD = Layout(
    Field("total_size", "i", "bytes left in the file, this field included"),
    Field("magic", "i", "0xCBD43194"),
)

FILE_NAME_DIGITS = 20

# --- consume queue --------------------------------------------------------------------------------

CONSUME_QUEUE_ENTRY = Layout(
    Field("commit_log_offset", "q", "first byte of the record in the commit log"),
    Field("size", "i", "bytes of the whole record, header included"),
    Field("tags_code", "q", "Java hash of the tag, or a delivery time in ms"),
)

MOST_TAGS_CODE = 0x7FFF_FFFF
"""Largest hash of a tag. In the timer's queue a larger value is a time; a broker may have left a hash there."""

PRE_BLANK_ENTRY = (0, 0x7FFF_FFFF, 0)
"""Fills a consume queue file below the first offset it holds."""

# --- compacted file -------------------------------------------------------------------------------

COMPACTED_MAGIC = b"RMQCOMP1"

COMPACTED_HEADER = Layout(
    Field("magic", "8s", "RMQCOMP1"),
    Field("compacted_to", "q", "queue offset below which the file stands for all messages"),
    Field("entries_at", "q", "position of the first entry, behind the last record"),
    Field("count", "q", "records, and entries"),
    Field("made_at", "q", "ms, when it was made"),
    Field("crc", "I", "CRC-32 of the fields before"),
)

COMPACTED_ENTRY = Layout(
    Field("queue_offset", "q", "number of the message within its queue"),
    Field("position", "q", "first byte of its record in this file"),
    Field("delete_at", "q", "ms, from when on a tombstone goes; 0 for a message with a body"),
    Field("size", "i", "bytes of the record"),
    Field("crc", "I", "CRC-32 of the fields before"),
)

# --- index ----------------------------------------------------------------------------------------

INDEX_HEADER = Layout(
    Field("begin_timestamp", "q", "store time of the first record indexed, ms"),
    Field("end_timestamp", "q", "of the last one"),
    Field("begin_offset", "q", "commit log offset of the first record indexed"),
    Field("end_offset", "q", "of the last one"),
    Field("slots_used", "i", "slots that point to an entry"),
    Field("next_number", "i", "of the entry to be written next; 1 in an empty file"),
)

INDEX_SLOT_SIZE = 4

INDEX_ENTRY = Layout(
    Field("key_hash", "i", "Java hash of topic#key, without its sign"),
    Field("commit_log_offset", "q", "first byte of the record"),
    Field("seconds", "i", "from the file's begin_timestamp to the record's store time"),
    Field("previous", "i", "number of the entry before it in the same slot, 0 for none"),
)

# --- checkpoint -----------------------------------------------------------------------------------

CHECKPOINT_SIZE = 4096

CHECKPOINT = Layout(
    Field("commit_log_timestamp", "q", "store time of the newest flushed record, ms [physicMsgTimestamp]"),
    Field("consume_queue_timestamp", "q", "the same for consume queues [logicsMsgTimestamp]"),
    Field("index_timestamp", "q", "the same for the index [indexMsgTimestamp]"),
    Field("flushed_to", "q", "commit log offset known to be on disk [masterFlushedOffset, 5.0]"),
)

LOW_WATER_AT = (1024, 2048)
"""Two alternating slots in the checkpoint file, each in a sector of its own; RocketMQ leaves them alone."""

LOW_WATER = Layout(
    Field("sequence", "q", "the higher one of two valid slots counts"),
    Field("flushed_to", "q", "every record below it is on disk"),
    Field("dispatched_to", "q", "every consume queue entry for a record below it is on disk"),
    Field("queue_ends", "q", "sum of the max offsets that all queues had there, or a little less"),
    Field("crc", "I", "CRC-32 of the fields before"),
)

# --- timer.done -----------------------------------------------------------------------------------

TIMER_SNAPSHOT = Layout(
    Field("magic", "8s", "RMQTIMER"),
    Field("scan_from", "q", "commit log offset; every end of a wait below it is in the bits"),
    Field("flushed_to", "q", "commit log offset; no bit is set by a record at or above it"),
    Field("done_to", "q", "queue offset in the timer, below which all are done"),
    Field("end", "q", "queue offset behind the last message"),
    Field("crc", "I", "CRC-32 of the fields before and of the bits"),
)
"""Then the bits of the messages from done_to up to end, lowest first, in whole words of 64."""

# --- history.rings --------------------------------------------------------------------------------

HISTORY_HEAD = Layout(
    Field("magic", "8s", "RMQHIST1"),
    Field("sequence", "q", "the higher one of two valid heads counts"),
    Field("size", "i", "bytes of the document, which follows"),
    Field("crc", "I", "CRC-32 of the fields before and of the document"),
)

HISTORY_FILE = "history.rings"
HISTORY_HEAD_BYTES = 131_072
"""Room of each of the two heads, at the beginning of the file."""

HISTORY_RINGS = ((10, 640 << 10), (60, 2_304 << 10), (900, 4_992 << 10))
"""Seconds of a record, and bytes, of each ring; the rings stand behind the heads, in this order."""

HISTORY_RECORD = Layout(
    Field("magic", "4s", "RMQh"),
    Field("size", "I", "bytes of the rows, which follow"),
    Field("number", "q", "of the record in its ring, from 1 on"),
    Field("began", "q", "ms since 1970, when the record before it ended"),
    Field("ended", "q", "ms since 1970, when the counters were read"),
    Field("first", "q", "number of the first record of the finer ring that it sums up; 0 in the finest ring"),
    Field("last", "q", "number of the last one"),
    Field("groups", "I", "rows"),
    Field("crc", "I", "CRC-32 of the fields before and of the rows"),
)

# --- clock of a test -------------------------------------------------------------------------------

CLOCK = Layout(
    Field("ahead_ns", "q", "what the clock was moved forward"),
    Field("extra_speed", "q", "seconds that pass beyond the real one in each real second"),
    Field("wall_since_ns", "q", "CLOCK_REALTIME when the clock was made; it runs faster from then on"),
    Field("boottime_since_ns", "q", "CLOCK_BOOTTIME at that moment"),
    Field("moved", "I", "futex: +1 when the clock was moved, and when a sleeper shall look"),
    Field("unused", "4s", "0"),
    Field("magic", "8s", "RMQCLOCK"),
    order=NATIVE,
)

# --- runtime file ---------------------------------------------------------------------------------

RUNTIME_MAGIC = int.from_bytes(b"RMQSHARE", "little")
RUNTIME_VERSION = 5

RUNTIME_HEADER = Layout(
    Field("magic", "Q", "RMQSHARE, written last when the file is built"),
    Field("version", "Q", "of these tables"),
    Field("fingerprint", "Q", "CRC-32 of every runtime table, names and sizes"),
    Field("device", "Q", "device of the file itself: a copy is not the original"),
    Field("inode", "Q", "inode of the file itself"),
    Field("init_epoch", "Q", "random, new each time the file is built"),
    Field("boot_id", "36s", "of the kernel that was running"),
    Field("_pad0", "4s", ""),
    Field("commit_log_file_bytes", "Q", "fixed setting of the store"),
    Field("consume_queue_file_bytes", "Q", "fixed setting of the store"),
    Field("queue_count", "Q", "slots of the queue table in use; grows only"),
    Field("group_queue_count", "Q", "slots of the group-queue table in use; grows only"),
    Field("offsets_digest", "Q", "of consumerOffset.json as last written or read here"),
    Field("offsets_digest_next", "Q", "of the one being written; a crash leaves the file with one of the two"),
    Field("lock_mtime", "Q", "ns, of the lock file, which a broker writes to whenever it starts"),
    Field("running_count", "Q", "slots of the running table that were ever in use; grows only"),
    Field("openings", "Q", "numbers given to owners of mutexes; see store/files/lock_owner.py"),
    Field("mounting", "Q", "of the file system that the file is on, as store/files/file_system.py says; 0 for unknown"),
    Field("counting_epoch", "Q", "random, new each time that counters begin at 0: after a reboot, not after a kill"),
    Field("_pad1", "16s", ""),
    Field("append_mutex", "64s", "a word that names its owner; guards the fields down to last_store_timestamp"),
    Field("append_stage", "Q", "0 idle, 1 copying records, 2 records whole and entries due"),
    Field("append_from", "Q", "first byte of the append under way"),
    Field("written_to", "Q", "exclusive end of the append under way; holds bytes nobody may read yet"),
    Field("last_store_timestamp", "Q", "ms; store timestamps do not go back by small clock steps"),
    Field("published_to", "Q", "exclusive end of whole records; a reader never looks past it"),
    Field("progress_at", "Q", "byte of a word, or of bits of the timer, that the append also moves on; 0 for none"),
    Field("progress_to", "Q", "its value when that append is done, or the bits that are then set"),
    Field("bytes_before", "Q", "bytes_in of the append's queue before it"),
    Field("other_bytes_before", "Q", "the same of its other queue; see append_section"),
    Field("following_lanes", "Q", "bit per arrival lane with a thread that follows the whole log"),
    Field("restricted", "Q", "bits of RESTRICTED: why not every append is made as it comes; 0 for no reason"),
    Field("_pad2", "40s", ""),
    Field("flushed_to", "Q", "exclusive end of what fdatasync has made durable"),
    Field("poisoned", "Q", "errno of the first failed flush, 0 while all is well"),
    Field("flush_word", "I", "futex: +1 after each flush"),
    Field("flush_waiters", "I", "1 when a SYNC sender sleeps; cleared by the waker"),
    Field("disk_full", "Q", "1 while the disk is too full for appends; see store/settings/disk.py"),
    Field("zeroed_to", "Q", "the file system has written blocks below it once; see store/upkeep/flush.py"),
    Field("_pad4", "24s", ""),
    Field("flush_mutex", "64s", "a word that names its owner, who is the flush leader"),
    Field("min_offset", "Q", "first byte of the oldest commit log file"),
    Field("allocated_to", "Q", "exclusive end of the newest allocated commit log file"),
    Field("prepare_word", "I", "futex: +1 when an appender enters a new file, or a process ends its housekeeping"),
    Field("removed_word", "I", "futex: +1 after files were removed"),
    Field("indexed_to", "Q", "every record below it is in the index"),
    Field("index_timestamp", "Q", "ms; index files that end no later are on disk"),
    Field("timer_next_due", "Q", "ms, when the next message of the timer is due, 0 for none; for display"),
    Field("worker_restarts", "Q", "workers that were started again, by all supervisors"),
    Field("handling_count", "Q", "slots of the handling table in use; grows only"),
    Field("table_mutex", "64s", "a word that names its owner; guards the giving of slots in every table"),
    Field("membership_word", "I", "futex: +1 on every join, leave, death, subscription or queue change"),
    Field("replica_word", "I", "futex: +1 when replicated_to or replica_lease has moved"),
    Field("replicated_to", "Q", "every byte below it is at as many followers as a send waits for"),
    Field("replica_lease", "Q", "ns on CLOCK_BOOTTIME until which so many followers are in sync; 0 for none"),
    Field("replica_timeout_ms", "Q", "how long a send waits for followers"),
    Field("is_missing", "Q", "1 while replication.json says that followers lack what was answered"),
    Field("housekeeper_turn", "Q", "+1 whenever a process takes the role; the one before then does nothing more"),
    Field("housekeeper_beat", "Q", "ns on CLOCK_BOOTTIME, when the housekeeper last was at work; 0 before the first"),
    Field("housekeeper_pid", "Q", "for display only, in its PID namespace"),
    Field("failing", "Q", "bit per pass of PASSES whose last run failed"),
    Field("stepped_over", "Q", "items that a pass could do nothing with, since the file was built"),
    Field("stepped_over_at", "Q", "ms since 1970, when the last of them was stepped over; 0 for none"),
    order=NATIVE,
)

RESTRICTED = {"replica": 1, "refuse": 2, "degrade": 4, "closed": 8, "replaced": 16}
"""A replica; without followers a send is refused, or answered; closed for good; another directory is at the path."""

PASSES = (
    "flushing the log",
    "flushing all of the log",
    "flushing the queues",
    "writing the checkpoint",
    "writing consumerOffset.json",
    "looking at the disk",
    "removing old files",
    "compacting topics",
    "building the index",
    "writing delayOffset.json",
    "writing the progress of the timer",
    "checking transactions",
    "making the next file of the log",
    "delivering timed messages",
    *(f"delivering delay level {level}" for level in range(1, 19)),
    "writing the history",
)
"""What the housekeeper does again and again, by the bit of ``failing``."""

IDLE, COPYING, RECORDED = range(3)
"""Values of ``append_stage``."""

ARRIVAL_LANES = 64
ARRIVAL_LANE_STRIDE = 64
"""Each lane is a futex word on a cache line of its own. A consumer waits on one lane; see ``waiting_lanes``."""

QUEUE_SLOTS = 16_384

QUEUE_SLOT = Layout(
    Field("queue_id", "I", ""),
    Field("topic_size", "I", "bytes of the topic"),
    Field("topic", "128s", "padded with zeros"),
    Field("_pad0", "56s", ""),
    Field("max_offset", "Q", "queue_offset of the next message; advanced after the entry is whole"),
    Field("min_offset", "Q", "queue_offset of the oldest message"),
    Field("waiting_lanes", "Q", "bit per arrival lane with a sleeping consumer; taken and cleared by the waker"),
    Field("bytes_in", "Q", "bytes of all records that were appended"),
    Field("_pad1", "32s", ""),
    order=NATIVE,
)

GROUP_QUEUE_SLOTS = 16_384
ACK_WINDOW = 2_048

GROUP_QUEUE_SLOT = Layout(
    Field("queue_slot", "I", "slot of the message queue"),
    Field("group_size", "I", "bytes of the group"),
    Field("group", "128s", "padded with zeros"),
    Field("delivered", "Q", "messages that members have taken, each time anew"),
    Field("bytes_out", "Q", "bytes of their records"),
    Field("failed", "Q", "delivery attempts that failed"),
    Field("retried", "Q", "finished here by storing a copy for the next attempt"),
    Field("dead_lettered", "Q", "finished here by storing a dead letter"),
    Field("skipped", "Q", "finished because the group does not want them"),
    Field("lost", "Q", "finished because retention removed them first"),
    Field("mutex", "48s", "a word that names its owner; guards every field below, and retried to lost"),
    Field("orphaned", "Q", "1 from the death of an owner of the mutex until the next one has settled what it left"),
    Field("counting", "Q", "position in COUNTED of what is being marked as finished; 0 when nothing else is"),
    Field(
        "epoch", "Q", "+1 per grant; from bit 48 on +1 per group that gets the slot; another acknowledgement is refused"
    ),
    Field("owner", "Q", "member slot + 1, 0 when free"),
    Field("owner_incarnation", "Q", "of that member"),
    Field("lease_until", "Q", "ns on CLOCK_BOOTTIME"),
    Field("committed_offset", "Q", "every message below it is finished"),
    Field("advance_to", "Q", "where committed_offset is being moved to; equal to it when no move is under way"),
    Field("taken_to", "Q", "every message at or above it was never taken by the present owner; for display"),
    Field("flow_control", "Q", "why the owner takes nothing just now; for display"),
    Field("acknowledged", "256s", "bit queue_offset % 2048, for messages above committed_offset"),
    Field("paused", "Q", "1 while the group takes nothing from the queue, 2 once the group was forgotten"),
    Field(
        "held_offset",
        "Q",
        "queue_offset + 1 of the failed message that an ordered queue waits for, or of a batch, 0 for none",
    ),
    Field("held_attempts", "Q", "delivery attempts of that message so far, and above 32 bits its number in its batch"),
    Field("seek_to", "Q", "queue_offset + 1 to which the group is being moved, 0 for none"),
    Field("fenced_until", "Q", "ns on CLOCK_BOOTTIME, 0 for none; nobody but fenced_for takes the queue before"),
    Field("fenced_for", "Q", "digest of the owner's client id"),
    Field("handled", "Q", "finished by a handler, or by a commit of a consumer that pulls"),
    Field("counted_from", "Q", "committed_offset plus bits set is this plus the words of COUNTED; a seek moves it"),
    order=NATIVE,
)

FORGOTTEN = 2
"""Of ``paused``: nobody finds this slot any more. Groups that come later get it."""

COUNTED = ("handled", "retried", "dead_lettered", "skipped", "lost")
"""Why messages of a group-queue are finished: each word counts messages. A compressed batch is one message."""

MEMBER_SLOTS = 1_024

MEMBER_SLOT = Layout(
    Field("incarnation", "Q", "0 when free; +1 for every use of the slot, odd while in use"),
    Field("pid", "I", "for display only"),
    Field("group_size", "I", ""),
    Field("group", "128s", ""),
    Field("topic_size", "I", ""),
    Field("client_id_size", "I", ""),
    Field("topic", "128s", ""),
    Field("client_id", "128s", "members are sorted by it"),
    Field("subscription_hash", "Q", "Java hash of the filter expression"),
    Field("heartbeat", "Q", "ns on CLOCK_BOOTTIME"),
    Field("subscription_size", "I", ""),
    Field("wake_word", "I", "futex: +1 when the consumer of this member shall look at the tables"),
    Field("wake_slot", "I", "member slot on whose wake_word the consumer of this member sleeps"),
    Field("_pad0", "4s", ""),
    Field("kept_at", "Q", "ns on CLOCK_BOOTTIME, when long calls were last seen to keep all its threads; 0 for never"),
    Field("busy", "Q", "1 while they do and messages wait, so that other members are to have its queues"),
    Field("_pad1", "56s", ""),
    Field("subscription", "512s", "what every member of the group must have the same, as text"),
    order=NATIVE,
)

RUNNING_SLOTS = 8_192

RUNNING_SLOT = Layout(
    Field("member", "Q", "member slot + 1 of the process, 0 when free"),
    Field("incarnation", "Q", "of that member"),
    Field("queue_offset", "Q", "of the message whose handler runs, the first one of a batch"),
    Field("last_offset", "Q", "of the last message of the batch; those of the group-queue in between may be others'"),
    Field("attempt", "Q", "how often it was begun from this queue, 0 when no handler runs; written last"),
    Field("group_queue", "I", "slot of the group-queue table"),
    Field("pid", "I", "of the process, for the history of a dead letter"),
    Field("began", "Q", "ns on CLOCK_BOOTTIME, when the handler's call began, 0 when no handler runs"),
    Field("overdue_at", "Q", "ns on CLOCK_BOOTTIME, when the supervisor ended the process for this call; 0 for no end"),
    Field(
        "grant",
        "Q",
        "epoch of the grant of its messages, and group_queue from bit 48 on; others move it and clear it",
    ),
    Field("_pad0", "56s", ""),
    order=NATIVE,
)
"""One handler thread. It writes here what it is about to run, so that others find what was running when it died."""

NOBODY = MEMBER_SLOTS + 1
"""Stands for ``member``, and for ``owner``, when the member belonged to an earlier runtime file, so that it is dead."""

HANDLING_SLOTS = 1_024

HANDLING_BOUNDS_MS = (0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)
"""Upper bounds of the classes of a histogram; one class more is for all above."""

HISTOGRAM_WORDS = len(HANDLING_BOUNDS_MS) + 2
"""A count for each class, then the sum in ns."""

HANDLING_SLOT = Layout(
    Field("group_size", "I", "bytes of the group"),
    Field("topic_size", "I", "bytes of the topic"),
    Field("group", "128s", "padded with zeros"),
    Field("topic", "128s", "of the handler, padded with zeros"),
    Field("handled_time", f"{HISTOGRAM_WORDS * 8}s", "histogram of the calls that returned"),
    Field("failed_time", f"{HISTOGRAM_WORDS * 8}s", "histogram of the calls that raised"),
    Field("waited_time", f"{HISTOGRAM_WORDS * 8}s", "histogram of the times from the store time to the call"),
    Field("_pad0", "48s", ""),
    order=NATIVE,
)
"""How long the messages of one handler took. Every process adds to it at its heartbeat."""

SCHEDULE_SLOTS = 64

SCHEDULE_SLOT = Layout(
    Field("next_offset", "Q", "queue_offset of the next message of this delay level to be delivered"),
    Field("_pad0", "56s", ""),
    order=NATIVE,
)

TIMER_BITS = 1 << 24

TIMER_HEADER = Layout(
    Field("done_to", "Q", "every message of the timer below it is done, and its bit is clear again; a multiple of 64"),
    Field("clearing_to", "Q", "where done_to is being moved to; equal to it when no move is under way"),
    Field("_pad0", "4080s", ""),
    order=NATIVE,
)
"""Then TIMER_BITS bits in words: bit ``queue_offset % TIMER_BITS`` of a message that is done."""

WORKER_SLOTS = 256

WORKER_SLOT = Layout(
    Field("incarnation", "Q", "odd while in use"),
    Field("pid", "I", "of the worker"),
    Field("supervisor_pid", "I", "of its parent"),
    Field("state", "Q", "0 free, 1 starting, 2 ready, 3 draining"),
    Field("beat", "Q", "ns on CLOCK_BOOTTIME, from a thread of its own"),
    Field("message_started", "Q", "ns when the oldest running handler call began, 0 when none runs"),
    Field("in_flight", "Q", "messages taken and not finished"),
    Field("handled", "Q", "messages acknowledged"),
    Field("failed", "Q", "deliveries that raised"),
    Field("restarts", "Q", "how often the worker of this name was started again"),
    Field("name_size", "I", "bytes of the name"),
    Field("name", "52s", "of the worker, such as worker-3; the same for the one that replaces it"),
    order=NATIVE,
)

_PAGE = 4096


def _up(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


ARRIVAL_LANES_AT = _up(RUNTIME_HEADER.size)
QUEUE_TABLE_AT = ARRIVAL_LANES_AT + _up(ARRIVAL_LANES * ARRIVAL_LANE_STRIDE)
GROUP_QUEUE_TABLE_AT = QUEUE_TABLE_AT + _up(QUEUE_SLOTS * QUEUE_SLOT.size)
MEMBER_TABLE_AT = GROUP_QUEUE_TABLE_AT + _up(GROUP_QUEUE_SLOTS * GROUP_QUEUE_SLOT.size)
WORKER_TABLE_AT = MEMBER_TABLE_AT + _up(MEMBER_SLOTS * MEMBER_SLOT.size)
RUNNING_TABLE_AT = WORKER_TABLE_AT + _up(WORKER_SLOTS * WORKER_SLOT.size)
SCHEDULE_TABLE_AT = RUNNING_TABLE_AT + _up(RUNNING_SLOTS * RUNNING_SLOT.size)
HANDLING_TABLE_AT = SCHEDULE_TABLE_AT + _up(SCHEDULE_SLOTS * SCHEDULE_SLOT.size)
TIMER_AT = HANDLING_TABLE_AT + _up(HANDLING_SLOTS * HANDLING_SLOT.size)
RUNTIME_SIZE = TIMER_AT + _up(TIMER_HEADER.size + TIMER_BITS // 8)

RUNTIME_TABLES = {
    "header": RUNTIME_HEADER,
    "queue": QUEUE_SLOT,
    "group_queue": GROUP_QUEUE_SLOT,
    "member": MEMBER_SLOT,
    "worker": WORKER_SLOT,
    "running": RUNNING_SLOT,
    "schedule": SCHEDULE_SLOT,
    "handling": HANDLING_SLOT,
    "timer": TIMER_HEADER,
}


RUNTIME_FINGERPRINT = zlib.crc32(
    "\n".join(f"{name}\n{table.table()}" for name, table in RUNTIME_TABLES.items()).encode()
)
"""Of the tables: a process with other ones cannot share a runtime file."""

LAYOUT_FINGERPRINT = 0x7FFF_FFFF & zlib.crc32(
    repr(
        [
            (name, (value.at, value.size) if isinstance(value, Layout) else value)
            for name, value in list(globals().items())
            if name.isupper() and (isinstance(value, Layout | int) or name == "FOUND")
        ]
    ).encode()
)
"""Of all tables and numbers above: a kernel that was built with other ones is refused."""
