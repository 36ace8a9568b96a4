"""The runtime file ``<root>/shared``: the state that the processes with the store open share.

It is not durable truth. It survives ``kill -9`` of any process, and the first process that opens the store builds it
anew; committed offsets and acknowledgements are carried over while the kernel that wrote them still runs, and has the
file system mounted all the while. The layout is in :mod:`rmqclient.store.layout` (``RUNTIME_HEADER`` and the tables).
This table says which process may touch what. A field of a table stands behind the name of the table, ``all`` for the
fields without a row of their own:

===========================  ==================  =======================================================================
field                        written under       when a reader may look; what a crash leaves
===========================  ==================  =======================================================================
magic, version,              the builder         anything: they are whole before the file gets its name, and never
fingerprint, device, inode,                      change
init_epoch, boot_id,
mounting, lock_mtime,
commit_log_file_bytes,
consume_queue_file_bytes,
counting_epoch
append_stage, append_from,   append mutex        nothing without the mutex; the next owner repairs by them
written_to, progress_at,
progress_to, bytes_before,
other_bytes_before
last_store_timestamp         append mutex        at any time; it is at most one append old
published_to                 append mutex        acquire it, then read any record below; never falls
flushed_to, poisoned         flush mutex         at any time; a lower flushed_to than the truth costs one needless flush
zeroed_to                    flush mutex         at any time; any value is right, another one than the truth costs time
flush_word, flush_waiters,   atomic              sleep on it; a ring too many costs a needless look, and sleepers whose
prepare_word, removed_word,                      ring was lost wake by themselves
membership_word,
replica_word
following_lanes              atomic              nobody but the waker; a bit too many costs one needless wake-up
restricted                   the builder, topic  at any time: "replica" and "closed" stay as long as the file, the
                             byte; "closed":     others change when a server starts. Who sets "closed" then waits for
                             atomic              the append mutex, so no append of any process is under way behind it
replicated_to,               the process that    at any time; both are true when they are said, and the lease ends by
replica_lease                sends the log       itself when that process is dead
replica_timeout_ms           topic byte          at any time
is_missing                   topic byte          after an append; a wrong 0 costs a look at replication.json
disk_full                    atomic              appends look again when it is set; a wrong 0 lasts a second
min_offset                   atomic              acquire it when a file is missing; never falls. It is raised before
                                                 files are removed; after a crash the next pass removes the files below
                                                 it
allocated_to                 housekeeper byte    at any time, for display
indexed_to, index_timestamp  index byte          at any time; a lower value than the truth costs some work done again
offsets_digest,              topic byte          at the next opening: a crash leaves consumerOffset.json with one of the
offsets_digest_next                              two
timer_next_due               housekeeper byte    at any time, for display
openings                     atomic              never: who opens the store adds 1 and has the result, or wastes it
housekeeper_turn             atomic              at any time; who raises it has the role, and who raised it before
                                                 has it no more
housekeeper_beat,            who has the turn    at any time; a beat that is too old costs a change of the role
housekeeper_pid
failing, stepped_over,       atomic              at any time, for display
stepped_over_at
worker_restarts              atomic              at any time, for display
queue_count,                 table mutex         acquire the count, then read any slot below it; never falls
group_queue_count,
running_count,
handling_count
queue: queue_id,             table mutex         at any time, below queue_count; they never change
topic_size, topic
queue: max_offset            append mutex        acquire it, then read any entry below; never falls
queue: min_offset            atomic              as min_offset of the log
queue: bytes_in              append mutex        at any time, for display; the next owner repairs it
queue: waiting_lanes         atomic              nobody but the waker; a bit too many costs one needless wake-up
group_queue: queue_slot,     table mutex         at any time, below group_queue_count; they change while the slot is
group_size, group                                forgotten, after the generation in epoch
group_queue: advance_to      mutex of the slot   as the rest of the slot. In slots of CID_RMQ_SYS_TRANS, append mutex:
                                                 moved on in the append that passes a half message, and raised by
                                                 compare and swap over those that are decided
group_queue: delivered,      atomic              at any time, for display
bytes_out, failed
group_queue: orphaned,       mutex of the slot   the next owner counts what is marked and not counted, by the word of
counting, counted_from                           layout.COUNTED that ``counting`` says
group_queue: all             mutex of the slot   words at any time, for display; only the owner with the present epoch
                                                 changes acknowledgements
member: incarnation          its owner, or its   odd while in use. A watcher that finds the owner dead makes it even, by
                             watcher             compare and swap, so that others need not probe its lock
member: wake_word            atomic              sleep on it; a ring too many costs a needless look
member: all                  its owner           while the incarnation stays odd and the same; the owner is dead when
                                                 its byte lock is free (store/files/file_lock.py)
worker: all                  its owner           at any time; as member slots
running: all                 its handler thread  when the member is dead: what it says was running when the member died
handling: group_size,        table mutex         at any time, below handling_count; they never change
topic_size, group, topic
handling: all                atomic              at any time; a death loses the times of the last heartbeat
schedule: next_offset        append mutex        at any time; moved on in the append of the copy, and the next owner
                                                 repairs
timer: done_to, clearing_to  append mutex        at any time. The bits behind them are set in the append that ends a
                                                 wait, which the next owner repairs, and cleared below done_to:
                                                 store/waiting/timer_bits.py
===========================  ==================  =======================================================================

Invariant, checked by ``rmq store verify``:

10. ``flushed_to <= published_to <= written_to`` whenever the append mutex is free and the stage is idle.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.errors import ConfigMismatch, StoreClosed, StoreFull, StoreUnusable, TableFull
from rmqclient.store.files.file_system import mounting_of
from rmqclient.store.files.lock_owner import new_owner
from rmqclient.store.files.mapped_file import allocate, map_file
from rmqclient.store.files.own_blocks import RESERVE
from rmqclient.store.kernel._kernel import Mapping, RobustMutex, Words
from rmqclient.store.message_queue import is_name
from rmqclient.store.runtime.awake import Awake

FILE_NAME = "shared"
_BUILDING = "shared.building"


_OPENINGS = layout.RUNTIME_HEADER.at["openings"]


def boot_id() -> str:
    """Return the id of the running kernel's boot, 36 characters."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class _Word:
    """A 64-bit word of the header as an attribute. Reading it acquires, writing it releases."""

    def __init__(self, name: str) -> None:
        self._at = layout.RUNTIME_HEADER.at[name]

    def __get__(self, state: SharedState, owner: type | None = None) -> int:
        return state.words.load(self._at)

    def __set__(self, state: SharedState, value: int) -> None:
        state.words.store(self._at, value)


class SharedState:
    """The mapped runtime file."""

    lock_mtime = _Word("lock_mtime")
    queue_count = _Word("queue_count")
    group_queue_count = _Word("group_queue_count")
    running_count = _Word("running_count")
    offsets_digest = _Word("offsets_digest")
    offsets_digest_next = _Word("offsets_digest_next")
    append_stage = _Word("append_stage")
    append_from = _Word("append_from")
    written_to = _Word("written_to")
    last_store_timestamp = _Word("last_store_timestamp")
    published_to = _Word("published_to")
    progress_at = _Word("progress_at")
    progress_to = _Word("progress_to")
    bytes_before = _Word("bytes_before")
    other_bytes_before = _Word("other_bytes_before")
    restricted = _Word("restricted")
    replicated_to = _Word("replicated_to")
    replica_lease = _Word("replica_lease")
    replica_timeout_ms = _Word("replica_timeout_ms")
    is_missing = _Word("is_missing")
    flushed_to = _Word("flushed_to")
    poisoned = _Word("poisoned")
    zeroed_to = _Word("zeroed_to")
    disk_full = _Word("disk_full")
    min_offset = _Word("min_offset")
    allocated_to = _Word("allocated_to")
    indexed_to = _Word("indexed_to")
    index_timestamp = _Word("index_timestamp")
    timer_next_due = _Word("timer_next_due")
    worker_restarts = _Word("worker_restarts")
    counting_epoch = _Word("counting_epoch")
    handling_count = _Word("handling_count")
    housekeeper_beat = _Word("housekeeper_beat")
    housekeeper_pid = _Word("housekeeper_pid")

    def __init__(self, mapping: Mapping) -> None:
        mapping.read_no_further()  # of 18 MB, a store with few queues touches a dozen pages
        self.mapping = mapping
        self.words = Words(mapping)
        self._as_words = memoryview(mapping).cast("B").cast("Q")
        header = layout.RUNTIME_HEADER.at
        self.append_mutex = RobustMutex(mapping, header["append_mutex"])
        self.flush_mutex = RobustMutex(mapping, header["flush_mutex"])
        self.table_mutex = RobustMutex(mapping, header["table_mutex"])
        self.awake = Awake()
        """The time by which this process judges others."""

    def lock_as_new_owner(self, root: Path) -> None:
        """Be able to lock the mutexes of this file, as an owner of its own. Raises StoreUnusable, LimitReached."""
        self.mapping.lock_as(new_owner(root / "lock", lambda: self.words.add(_OPENINGS, 1)))

    @property
    def is_replica(self) -> bool:
        """Whether the store follows another one."""
        return bool(self.restricted & layout.RESTRICTED["replica"])

    def text(self, at: int, size: int) -> str:
        """Return ``size`` bytes at ``at`` as text. The bytes must not change any more."""
        return bytes(memoryview(self.mapping)[at : at + size]).decode()

    def put_bytes(self, at: int, content: bytes) -> None:
        """Write bytes that nobody reads yet."""
        memoryview(self.mapping)[at : at + len(content)] = content

    def locked(self, mutex: RobustMutex, timeout_ms: int) -> AbstractContextManager[bool, None]:
        """Hold a mutex of this file for a rare, short step written in Python. Entering raises StoreBusy."""
        return mutex.held(timeout_ms)

    def shut(self, timeout_ms: int) -> None:
        """Refuse every append by this file from now on, and return when none is under way. Raises StoreBusy.

        A thread that was about to append when its process closed the store still has this file mapped, and would write
        over the records of the processes that open the store next.
        """
        self.words.set_bits(layout.RUNTIME_HEADER.at["restricted"], layout.RESTRICTED["closed"])
        with self.locked(self.append_mutex, timeout_ms):
            pass

    def end_replaced(self) -> None:
        """Let every append by this file look whether its directory is still there, and wake all who sleep."""
        self.words.set_bits(layout.RUNTIME_HEADER.at["restricted"], layout.RESTRICTED["replaced"])
        self.words.signal(layout.RUNTIME_HEADER.at["membership_word"])
        for lane in range(layout.ARRIVAL_LANES):
            self.signal_arrival(lane)

    def check_open(self, root: Path) -> None:
        """Raise StoreClosed for an append by this file after :meth:`shut`, of whatever process."""
        if self.restricted & layout.RESTRICTED["closed"]:
            raise StoreClosed(f"the store in {root} was closed before the append: nothing was written")

    def raise_word(self, at: int, value: int) -> None:
        """Raise a word to ``value`` if it is lower. Several processes may do so at once."""
        while (seen := self.words.load(at)) < value and not self.words.replace(at, seen, value):
            pass

    def raise_min_offset(self, commit_log_offset: int) -> None:
        """From now on, records below ``commit_log_offset`` are removed."""
        self.raise_word(layout.RUNTIME_HEADER.at["min_offset"], commit_log_offset)

    def column(self, at: int, stride: int, count: int) -> list[int]:
        """Return the word at ``at`` and the ones that follow it every ``stride`` bytes: one field of a whole table.

        Each word is read whole, but not all at one moment. A column costs a hundredth of as many loads.
        """
        return self._as_words[at // 8 : (at + stride * count) // 8 : stride // 8].tolist() if count else []

    def signal_membership(self) -> None:
        """Tell every consumer that members, subscriptions or queues changed."""
        self.words.signal(layout.RUNTIME_HEADER.at["membership_word"])
        fields = layout.MEMBER_SLOT.at
        sleeping = set()
        for slot in range(layout.MEMBER_SLOTS):
            incarnation = self.words.load(member_slot_at(slot) + fields["incarnation"])
            if incarnation == 0:
                break  # slots are taken from the first on: all slots after a never used one are unused
            if incarnation % 2:
                sleeping.add(self.words.load32(member_slot_at(slot) + fields["wake_slot"]))
        self.wake_members(sleeping)

    def wake_members(self, slots: Iterable[int]) -> None:
        """Make the consumers that sleep on the wake words of these member slots look at the tables."""
        for slot in slots:
            self.words.signal(member_slot_at(slot) + layout.MEMBER_SLOT.at["wake_word"])

    def signal_arrival(self, lane: int) -> None:
        """Wake every thread that sleeps on an arrival lane."""
        self.words.signal(arrival_lane_at(lane))


def arrival_lane_at(lane: int) -> int:
    """Byte of the futex word of an arrival lane."""
    return layout.ARRIVAL_LANES_AT + lane * layout.ARRIVAL_LANE_STRIDE


def slot_at(table_at: int, slot_layout: layout.Layout, slots: int, number: int) -> int:
    """Byte at which slot ``number`` of a table begins. Raises TableFull beyond its end."""
    if not 0 <= number < slots:
        raise TableFull(f"slot {number}: the table of the runtime file has {slots} slots")
    return table_at + number * slot_layout.size


queue_slot_at = partial(slot_at, layout.QUEUE_TABLE_AT, layout.QUEUE_SLOT, layout.QUEUE_SLOTS)
"""Byte of a slot of the queue table."""
group_queue_slot_at = partial(slot_at, layout.GROUP_QUEUE_TABLE_AT, layout.GROUP_QUEUE_SLOT, layout.GROUP_QUEUE_SLOTS)
member_slot_at = partial(slot_at, layout.MEMBER_TABLE_AT, layout.MEMBER_SLOT, layout.MEMBER_SLOTS)
running_slot_at = partial(slot_at, layout.RUNNING_TABLE_AT, layout.RUNNING_SLOT, layout.RUNNING_SLOTS)
schedule_slot_at = partial(slot_at, layout.SCHEDULE_TABLE_AT, layout.SCHEDULE_SLOT, layout.SCHEDULE_SLOTS)
"""Byte of the slot of a delay level, 0 for level 1."""
handling_slot_at = partial(slot_at, layout.HANDLING_TABLE_AT, layout.HANDLING_SLOT, layout.HANDLING_SLOTS)


def build(root: Path, commit_log_file_bytes: int, consume_queue_file_bytes: int) -> SharedState:
    """Make a new runtime file beside the old one. Only for the process that holds the store exclusively.

    :func:`finish` puts it where the old file is when its tables are filled; a crash before that leaves the old
    file to the next opener. Raises StoreFull.
    """
    path = root / _BUILDING
    path.unlink(missing_ok=True)
    if not allocate(path, layout.RUNTIME_SIZE, root):
        raise StoreFull(f"{path} was made by another process meanwhile")
    state = _mapped(path)
    status = path.stat()
    words = {
        "version": layout.RUNTIME_VERSION,
        "fingerprint": layout.RUNTIME_FINGERPRINT,
        "device": status.st_dev,
        "inode": status.st_ino,
        "init_epoch": secrets.randbits(63),
        "counting_epoch": secrets.randbits(63),
        "lock_mtime": (root / "lock").stat().st_mtime_ns,
        "mounting": mounting_of(status.st_dev),
        "commit_log_file_bytes": commit_log_file_bytes,
        "consume_queue_file_bytes": consume_queue_file_bytes,
    }
    for name, value in words.items():
        state.words.store(layout.RUNTIME_HEADER.at[name], value)
    state.put_bytes(layout.RUNTIME_HEADER.at["boot_id"], boot_id().encode("ascii"))
    for mutex in (state.append_mutex, state.flush_mutex, state.table_mutex):
        mutex.initialise()
    state.lock_as_new_owner(root)
    return state


def _mapped(path: Path, *, writable: bool = True) -> SharedState:
    state = SharedState(map_file(path, layout.RUNTIME_SIZE, writable=writable))
    state.mapping.has_reserve(os.fsencode(path.with_name(RESERVE)))
    return state


def give_up(root: Path, left: SharedState | None) -> None:
    """Remove the runtime file of the last processes, so that a new one has room on a full disk.

    ``left`` is the same file, as far as somebody here has it mapped; it must not be used any more.
    """
    if left is not None:
        left.mapping.detach()
    (root / FILE_NAME).unlink(missing_ok=True)


def finish(state: SharedState, root: Path) -> None:
    """Declare a built file whole, and put it in place."""
    state.words.store(layout.RUNTIME_HEADER.at["magic"], layout.RUNTIME_MAGIC)
    (root / _BUILDING).replace(root / FILE_NAME)


def attach(root: Path) -> SharedState:
    """Map the runtime file that another process built.

    Raises ConfigMismatch for the file of another version, StoreUnusable for a copy and where there is none.
    """
    path = root / FILE_NAME
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise StoreUnusable(
            f"{path} was removed while processes have the store open, which share it: stop them, then open it again"
        ) from error
    if size != layout.RUNTIME_SIZE:
        raise ConfigMismatch(
            f"{path} has {size} bytes, this version's has {layout.RUNTIME_SIZE}: another version of the library has "
            "the store open; stop its processes first"
        )
    state = _mapped(path)
    problem = what_differs(state)
    if problem:
        raise ConfigMismatch(f"{path}: {problem}; stop the processes that have the store open, then open it again")
    if state.words.load(layout.RUNTIME_HEADER.at["inode"]) != path.stat().st_ino:
        raise StoreUnusable(
            f"{path} is a copy: the processes that have the store open share another file, which it replaced; stop "
            "them, then open it again"
        )
    state.lock_as_new_owner(root)
    return state


def what_differs(state: SharedState) -> str | None:
    """Say why a runtime file cannot be used: another version built it, or an earlier boot. None when it can."""
    header = layout.RUNTIME_HEADER.read(state.mapping)
    if header["magic"] != layout.RUNTIME_MAGIC:
        return "it was never finished"
    if header["version"] != layout.RUNTIME_VERSION or header["fingerprint"] != layout.RUNTIME_FINGERPRINT:
        return f"its layout is version {header['version']}, fingerprint {header['fingerprint']}, of another build"
    if header["boot_id"].decode("ascii", "replace") != boot_id():
        return "it is from before the last boot"
    return None


def leftover(root: Path, *, writable: bool = True) -> SharedState | None:
    """Map the runtime file that the last processes left.

    None when it is missing, a copy, or from an earlier boot, or when its file system was away since: the pages that the
    kernel had are gone then, and what stands here may be older or newer than the log and the queues.
    """
    path = root / FILE_NAME
    try:
        status = path.stat()
        if status.st_size != layout.RUNTIME_SIZE:
            return None
        state = _mapped(path, writable=writable)
    except FileNotFoundError:  # any other error is raised: going on would forget what was acknowledged
        return None
    header = layout.RUNTIME_HEADER.read(state.mapping)
    if what_differs(state) or (header["device"], header["inode"]) != (status.st_dev, status.st_ino):
        return None
    mounting = mounting_of(status.st_dev)
    if mounting and header["mounting"] and mounting != header["mounting"]:
        return None
    if not _has_sound_tables(state):
        return None
    if writable:
        state.lock_as_new_owner(root)
    return state


def _has_sound_tables(state: SharedState) -> bool:
    """Tell whether every slot in use has a name of its own.

    The file has no checksum, because its words change all the time. A file that fails here was damaged.
    """
    in_use = (
        (state.queue_count, layout.QUEUE_SLOTS),
        (state.group_queue_count, layout.GROUP_QUEUE_SLOTS),
        (state.running_count, layout.RUNNING_SLOTS),
        (state.handling_count, layout.HANDLING_SLOTS),
    )
    if any(count > slots for count, slots in in_use):
        return False
    queues = [_key(state, queue_slot_at(slot)) for slot in range(state.queue_count)]
    groups = [_key(state, group_queue_slot_at(slot)) for slot in _groups_of(state)]
    return all(None not in keys and len({*keys}) == len(keys) for keys in (queues, groups))


def has_sound_offsets(state: SharedState) -> bool:
    """Tell whether ``committed_offset <= advance_to <= max_offset`` in every group; a damaged word breaks that.

    A seek under way breaks it, too: then ``seek_to`` must lie in the queue.
    """
    return all(_has_sound_offsets(state, slot) for slot in _groups_of(state))


def _groups_of(state: SharedState) -> list[int]:
    """Return the slots of groups that were not removed. A death may leave anything in the others."""
    at = layout.GROUP_QUEUE_SLOT.at["paused"]
    paused = state.column(group_queue_slot_at(0) + at, layout.GROUP_QUEUE_SLOT.size, state.group_queue_count)
    return [slot for slot, value in enumerate(paused) if value != layout.FORGOTTEN]


def _key(state: SharedState, at: int) -> tuple[bytes, int] | None:
    """Return name and number of a slot of the queue or group-queue table; None for a slot without a valid name."""
    number, size, padded = struct.unpack_from("=II128s", state.mapping, at)
    name = padded.rstrip(b"\0")
    return (name, number) if len(name) == size and is_name(name.decode("latin-1")) else None


def _has_sound_offsets(state: SharedState, slot: int) -> bool:
    words, at, fields = state.words, group_queue_slot_at(slot), layout.GROUP_QUEUE_SLOT.at
    queue_slot = words.load32(at + fields["queue_slot"])
    if queue_slot >= state.queue_count:
        return False
    committed, target = words.load(at + fields["committed_offset"]), words.load(at + fields["advance_to"])
    min_offset = words.load(queue_slot_at(queue_slot) + layout.QUEUE_SLOT.at["min_offset"])
    max_offset = words.load(queue_slot_at(queue_slot) + layout.QUEUE_SLOT.at["max_offset"])
    seek_to = words.load(at + fields["seek_to"])
    if seek_to:  # a seek ends the ownership before it says where to
        return seek_to <= max_offset + 1 and words.load(at + fields["owner"]) == 0
    if not committed <= target <= max_offset:
        return False
    return target - max(committed, min(target, min_offset)) <= layout.ACK_WINDOW  # over removed ones: any length


def process_start_unique() -> bytes:
    """Return the 10 bytes that begin every unique key of this handle: address, pid, random.

    RocketMQ (MessageClientIDSetter) has a class loader's hash in the last four; random bytes keep two handles apart
    even when a pid is used again.
    """
    return bytes((127, 0, 0, 1)) + (os.getpid() & 0xFFFF).to_bytes(2, "big") + secrets.token_bytes(4)
