"""Types of the compiled kernel. The rules of that file stand in its own docstring."""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Mapping as MappingLike
from typing import Protocol, Self, TypeAlias, final

from rmqclient.store.message_queue import MessageQueue

LAYOUT: dict[str, int]
CRC32_METHOD: str
SCHEDULE_TOPIC: str
TIMER_TOPIC: str
HALF_TOPIC: str
OPERATION_TOPIC: str
GIVEN_UP_TOPIC: str
DELAYS: list[str]
"""How long the messages of delay levels 1 to 18 wait, as RocketMQ writes it."""
RESERVED_PROPERTIES: frozenset[str]

class _AppendFiles(Protocol):
    @property
    def rolled(self) -> Callable[[], None]: ...
    def log_files(self, size: int) -> tuple[Mapping, int, Mapping | None, int]: ...
    def queue_files(self, slot: int, count: int) -> tuple[Mapping, int, Mapping | None, int]: ...
    def repair(self) -> None: ...
    def check_room(self) -> None: ...
    def month(self, now_ms: int) -> tuple[int, int]: ...

class _GrantFiles(Protocol):
    def log_file(self, commit_log_offset: int) -> tuple[Mapping, int] | None: ...
    def queue_file(self, slot: int, queue_offset: int) -> tuple[Mapping, int] | None: ...
    def oldest(self, slot: int) -> int: ...

def arm(point: int, passes: int, signal_number: int) -> None: ...
def crc32(data: bytes | memoryview | Mapping, value: int = 0) -> int:
    """Return the CRC-32 of ``data``, as :func:`zlib.crc32`."""

def boottime() -> int:
    """Return CLOCK_BOOTTIME in ns: one clock for all processes, which counts suspend and never steps."""

def delay_ms(level: int) -> int:
    """Return how long the messages of a delay level wait. Raises ValueError for a level that does not exist."""

def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``, 32 bits signed."""

MAX_INNER_MESSAGES: int
"""Most messages of a batch that is one record."""

def inner_messages(record: ReceivedMessage) -> list[ReceivedMessage]:
    """Return the messages of a batch, each as a record of its own, which stands in memory only.

    They have the place of the batch, its times and hosts. Raises BodyUnreadable for a body that is damaged or opens to
    too much, NotInstalled as :attr:`ReceivedMessage.body`, ValueError for a record that is no batch.
    """

def decode(
    buffer: bytes | memoryview | Mapping,
    position: int,
    commit_log_offset: int,
    queue: MessageQueue | None = None,
) -> ReceivedMessage | int:
    """Return the valid record at ``position``, or the number in ``FOUND`` of what stands there instead."""

@final
class Mapping:
    """A shared mapping of a whole file, a buffer. It keeps no descriptor; the last reference unmaps it."""

    size: int
    writable: bool
    def __new__(cls, fd: int, size: int, *, writable: bool = True) -> Self: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...
    def populate(self) -> None: ...
    def read_no_further(self) -> None: ...
    def detach(self) -> None: ...

@final
class Words:
    """Atomic access to the aligned native words of a mapping. Positions are bytes; ValueError outside."""

    def __new__(cls, mapping: Mapping) -> Self: ...
    def load(self, at: int) -> int: ...
    def store(self, at: int, value: int) -> None: ...
    def add(self, at: int, value: int) -> int: ...
    def replace(self, at: int, expected: int, desired: int) -> bool: ...
    def set_bits(self, at: int, bits: int) -> int: ...
    def load32(self, at: int) -> int: ...
    def store32(self, at: int, value: int) -> None: ...
    def wait(self, at: int, expected: int, timeout_ms: int) -> bool: ...
    def signal(self, at: int) -> int: ...

@final
class RobustMutex:
    """A robust, process-shared mutex in a mapping; of the thread that acquired it."""

    def __new__(cls, mapping: Mapping, at: int) -> Self: ...
    def initialise(self) -> None: ...
    def try_acquire(self) -> bool: ...
    def acquire(self, timeout_ms: int) -> None: ...
    def release(self) -> None: ...
    @property
    def owner(self) -> int: ...

@final
class Message:
    """One message to send.

    ``topic``: 1 to 127 characters of ``%a-zA-Z0-9_-``. ``body``: bytes as they are, anything else is encoded as JSON
    when it is sent. ``tags``: one tag to filter by. ``keys``: words to find the message by. ``properties``: strings of
    the application. ``flag``: 32 bits of the application. All is checked when the message is sent.
    """

    def __init__(
        self,
        topic: str,
        body: object,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: MappingLike[str, str] | None = None,
        flag: int = 0,
    ) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def body(self) -> object: ...
    @property
    def tags(self) -> str | None: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def properties(self) -> dict[str, str] | None: ...
    @property
    def flag(self) -> int: ...
    @property
    def sys_flag(self) -> int:
        """What the record will say of the body as it stands here: 0, or that it is compressed."""

    def with_body(self, body: bytes, sys_flag: int) -> Message:
        """Return this message with its body as it is to be stored, and what its record says of it: for producers."""

@final
class SendResult:
    """Where a sent message stands."""

    @property
    def message_id(self) -> str:
        """32 hexadecimal digits, unique to the message [UNIQ_KEY]."""

    @property
    def queue(self) -> MessageQueue:
        """The message queue that holds it."""

    @property
    def queue_offset(self) -> int:
        """Its number within the queue."""

    @property
    def commit_log_offset(self) -> int:
        """First byte of its record."""

    @property
    def commit_log_end(self) -> int:
        """First byte behind its record."""

    @property
    def is_duplicate(self) -> bool:
        """Whether nothing was sent, because this message stood there already; only of ``send_once``."""

def duplicate_of(message: ReceivedMessage, queue: MessageQueue) -> SendResult:
    """Return where a message stands, as the result of a send that did nothing."""

@final
class ReceivedMessage:
    """A message of the log; each field is decoded when it is read."""

    @property
    def topic(self) -> str:
        """Its topic. A message that a group gets from its retry topic shows the topic where it failed [RETRY_TOPIC]."""

    @property
    def queue(self) -> MessageQueue:
        """Where it was taken from; for a retry that is the queue of the retry topic."""

    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def commit_log_offset(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of the whole record."""

    @property
    def body(self) -> bytes:
        """Its body as it was sent: opened when it is compressed, once, and kept until it is acknowledged.

        Raises BodyUnreadable when it opens to more than :attr:`max_opened_body_bytes`, or not at all; NotInstalled
        when the package is missing that opens it.
        """

    @property
    def stored_body(self) -> bytes:
        """The bytes of its body in the record, which may be compressed."""

    def open_body(self, limit: int = ...) -> bytes:
        """Return :attr:`body` without keeping it, by a lower limit if one is given. Raises the same."""

    @property
    def max_opened_body_bytes(self) -> int:
        """What a compressed body may open to: what the store says from which it was taken, else 64 MiB."""

    def limited_to(self, max_opened_body_bytes: int) -> Self:
        """Set :attr:`max_opened_body_bytes`, and return this message."""

    @property
    def flag(self) -> int: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def born_timestamp(self) -> int:
        """ms since the epoch, by the producer's clock."""

    @property
    def store_timestamp(self) -> int:
        """ms since the epoch, taken when it was stored."""

    @property
    def tags(self) -> str | None: ...
    @property
    def tags_code(self) -> int:
        """What its consume queue entry holds: Java hash of the tag, 0 without one.

        For a delayed message that waits in SCHEDULE_TOPIC_XXXX it is the time in ms at which to deliver it.
        """

    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def sharding_key(self) -> str | None: ...
    @property
    def properties(self) -> dict[str, str]:
        """Every property on disk but the CRC."""

    @property
    def message_id(self) -> str:
        """The same as ``SendResult.message_id``; the offset message id for a message without one."""

    @property
    def offset_message_id(self) -> str:
        """Store host and commit log offset, as RocketMQ's ``offsetMsgId``."""

    @property
    def delivery_attempt(self) -> int:
        """1 for the first delivery; those that ended with the death of a process count, too."""

    @property
    def reconsume_times(self) -> int:
        """Delivery attempts before this record was stored."""

    def some_properties(self, names: tuple[bytes, ...]) -> dict[str, str]:
        """Return those of :attr:`properties` that are named, without decoding the others."""

    @property
    def inner_number(self) -> int:
        """Its place in the batch that it was sent in, from 0; 0 without one."""

    @property
    def unopened(self) -> Exception | None:
        """Why this record, which is a batch that a group was to get, cannot be opened."""

    def check_opened(self) -> None:
        """Raise :attr:`unopened`, if it is one."""

    def again(self, attempt: int = 0) -> ReceivedMessage:
        """Return the same message as its next delivery attempt, or as that ``attempt``."""

    @property
    def prepared_transaction_offset(self) -> int:
        """Commit log offset of the half message that this one was committed from; 0 without a transaction."""

    def as_delivered(self) -> ReceivedMessage:
        """Return the same message as a handler gets it: of a retry or a half message, with the topic it is for."""

    def record(self) -> bytes:
        """Return the bytes of the whole record."""

_Bytes: TypeAlias = bytes | bytearray | memoryview | Mapping

@final
class Dispatcher:
    """Checks records and consume queue entries, and writes entries where they are not right already.

    ``queue_file(topic, queue_id, queue_offset, commit_log_offset, end, is_checked)`` returns the mapped consume queue
    file that takes an entry, and the number of its first entry; or the queue offset to believe instead. ``end`` is
    behind the last one dispatched, 0 before the first; ``is_checked`` says whether the record has a CRC over its
    queue offset. None in its place: no entry is looked at.
    """

    right_to: int
    """Below this commit log offset the entries of all records that were checked are right."""
    records: int
    entries_written: int
    doubtful: list[tuple[int, int]]
    def __new__(
        cls,
        queue_file: Callable[[str, int, int, int, int, bool], tuple[Mapping, int] | int] | None,
        entries_per_file: int,
    ) -> Self: ...
    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """Queue offset behind the last record, by topic and queue id."""

    def check(self, buffer: _Bytes, base: int, start: int, stop: int) -> tuple[int, int]:
        """Walk over the valid records of one commit log file, whose bytes from ``base`` on are ``buffer``.

        Returns where the walk ended, and what stands there: a number of ``FOUND``, that of a record when all of it was
        valid up to ``stop``. Until the first entry that is not right, entries are compared with their records.
        """

    def dispatch(self, buffer: _Bytes, base: int, start: int, stop: int) -> int:
        """Dispatch the records of one commit log file up to ``stop``, or to where none stands; return that offset."""

def index_key_hash(topic: str, key: str) -> int:
    """Return the hash under which the index has a key of a topic (IndexFile.indexKeyHashMethod)."""

def index_records(
    buffer: _Bytes, base: int, start: int, stop: int, index: Mapping, slots: int, entries: int, done: int = 0
) -> tuple[int, int, bool]:
    """Add the keys of records of one commit log file to an index file.

    The first ``done`` keys of the first record are there already. Returns where it ended, how many keys of the record
    there were added, and whether that is because the index file is full.
    """

@final
class Running:
    """The running slot of one handler thread: what it says is found when the handler has killed its process.

    Made when the slot is claimed; ``member`` and ``incarnation`` stand in it already.
    """

    def __init__(self, shared: Mapping, at: int) -> None: ...
    def serve(self, group_queue: int) -> None:
        """Say of which slot of the group-queue table the next messages are."""

    def begin(self, message: ReceivedMessage) -> None:
        """Say that the handler of this message is about to run."""

    def begin_batch(self, messages: list[ReceivedMessage]) -> None:
        """Say that the handlers of these messages, one or more in the order of their queue, are about to run."""

    def rest(self) -> None:
        """Say that no handler runs. Nothing happens when the slot has gone to another member."""

    def release(self) -> None:
        """Give the slot back. Nothing happens when it has gone to another member."""

def running_in(shared: Mapping, table_at: int, count: int, group_queue: int) -> list[int]:
    """Return the numbers of the running slots in use that tell of a message of one group-queue slot."""

@final
class Route:
    """The queues of one topic, as an appender needs them."""

    topic: str
    compact: bool
    def __init__(self, topic: str, queues: list[MessageQueue], slots: list[int], compact: bool = False) -> None: ...

@final
class Ahead:
    """Keeps the pages ahead of the appends of one process populated; for one thread, but for :meth:`stop`."""

    def populate(
        self, mapping: Mapping, base: int, start: int, least: int, most: int, behind: Mapping | None = None
    ) -> int:
        """Populate the pages of the commit log file at ``base``, from ``start`` on, ahead of the writer.

        Returns how far it came: at the end of the file, when the writer has left it, or after :meth:`stop`. The thread
        stays ahead by twice what the writer wrote since the last step, but at least ``least`` and at most ``most``
        bytes. It needs no GIL meanwhile: a busy writer would give it back every 5 ms only.

        It also takes the pages behind the writer out of this process's page table, and the pages of the file ``behind``
        when the writer has left that file. Otherwise the flush would take them one by one, and interrupt the other
        processors for each of them. Raises ValueError when ``start`` is not inside the file, OSError without memory.
        """

    def wait_for_append(self) -> None:
        """Sleep until this process appends, for a second at most."""

    def stop(self) -> None:
        """End :meth:`populate` and :meth:`wait_for_append` in the thread that runs them."""

@final
class Appender:
    """Appends messages for one process; safe for its threads."""

    @property
    def ahead(self) -> Ahead:
        """What keeps pages populated ahead of the appends."""

    def __init__(
        self,
        shared: Mapping,
        files: _AppendFiles,
        make_route: Callable[[str], Route],
        encode_body: Callable[[object], bytes],
        *,
        log_file_bytes: int,
        entries_per_file: int,
        max_body_bytes: int,
        timeout_ms: int,
        busy_timeout_ms: int,
        queue_table_at: int,
        queue_slot_size: int,
        timer_at: int,
        timer_bits: int,
        born_host: bytes,
        store_host: bytes,
        unique_prefix: bytes,
    ) -> None: ...
    def add_route(self, route: Route) -> None: ...
    def append(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendResult:
        """Append a message. With ``due_ms``, in ms since 1970, it waits in the timer, and the result says where.

        Raises ValueError, MessageRejected, TimerFull, StoreFull, StoreBusy, StorePoisoned, LimitReached, DiskFailed.
        """
    def record_size(self, message: Message, sharding_key: str | None = None) -> int: ...
    def queue_of(self, message: Message, sharding_key: str | None = None) -> int | None:
        """Return the number of the queue that a message must go to; None where the queues take turns."""

    def append_batch(
        self, messages: Iterable[Message], sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> list[SendResult]: ...
    def deliver(self, message: ReceivedMessage, topic: str, queue_id: int, progress_at: int) -> SendResult | None:
        """Append a message that waited in a delay level, for its own queue, with everything but its place as it was.

        In the same append the word of the runtime file at byte ``progress_at`` moves from the message's queue offset to
        the next one: whatever dies, both happen or neither. None, and nothing is done, when the word is not there.

        Raises what ``append_copy`` raises.
        """
    def append_inner_batch(
        self,
        messages: Iterable[Message],
        pack: Callable[[bytes], tuple[bytes, int]],
        sharding_key: str | None = None,
        *,
        most_bytes: int,
    ) -> list[SendResult]:
        """Append messages as one record; see :mod:`rmqclient.store.log.inner_batch`.

        Each message has a result with the place of the record.

        ``pack`` returns the content compressed, and the system flag that says how. Raises MessageRejected for messages
        of several topics or tags, BatchTooLarge for more than ``most_bytes`` of content, for more messages than a batch
        holds, and when it is too long compressed, PropertiesTooLarge when their keys are, and what ``append`` raises.
        """
    def append_copy(
        self,
        message: ReceivedMessage,
        topic: str,
        queue_id: int,
        properties: MappingLike[str, str],
        *,
        reconsume_times: int,
        delay_level: int = 0,
        due_ms: int = 0,
    ) -> SendResult:
        """Append a message again, for queue ``queue_id`` of ``topic``, with exactly these properties in this order.

        Body, flag, ``sys_flag``, born time and both hosts stay. With a delay level of 1 to 18 (18 for one above) the
        copy waits in SCHEDULE_TOPIC_XXXX, with ``due_ms``, in ms since 1970, in the timer, and the result says where;
        the properties then have RocketMQ's order. The result's id is the property ``UNIQ_KEY``.

        Raises ValueError for a negative level and for a level with a time, MessageRejected, PropertiesTooLarge,
        BodyTooLarge and what ``append`` raises.
        """
    def append_half(
        self, message: Message, group: str, sharding_key: str | None = None, immunity_s: int = 0
    ) -> SendResult:
        """Append the half message of a transaction, for a queue of its topic that is chosen now, but not shown there.

        The result says where in RMQ_SYS_TRANS_HALF_TOPIC it stands. Raises what ``append`` raises.
        """
    def decide(
        self, half: ReceivedMessage, topic: str | None, queue_id: int, guards: MappingLike[int, int]
    ) -> SendResult | None:
        """Append the operation record of a half message and, with a topic, before it the committed message: one append.

        None, and nothing is done, unless each word of the runtime file at a byte in ``guards`` has its value. The
        result says where the committed message stands, without a topic where the operation does. Raises what
        ``append_copy`` raises.
        """
    def pass_half(
        self,
        half: ReceivedMessage,
        topic: str,
        properties: MappingLike[str, str],
        progress_at: int,
        guards: MappingLike[int, int],
    ) -> SendResult | None:
        """Append a half message again, to the half topic or to the topic of those given up, with these properties.

        In the same append the word at byte ``progress_at`` moves on, as in :meth:`deliver`; None as in :meth:`decide`.
        A half message loses its flag and its attempts when it is renewed (renewHalfMessageInner).
        """

def deliver_timed(appender: Appender, message: ReceivedMessage, topic: str, queue_id: int) -> SendResult | None:
    """Append a message of the timer for its own queue, and count it as done in the same append.

    None, and nothing is done, when it is done already. Raises what ``append_copy`` raises.
    """

def roll_timed(appender: Appender, message: ReceivedMessage) -> SendResult | None:
    """Append a message of the timer there again, behind all others; as :func:`deliver_timed`. Raises TimerFull, too."""

def cancel_timed(appender: Appender, message: ReceivedMessage) -> SendResult | None:
    """Append the operation that cancels a message of the timer; as :func:`roll_timed`."""

def wait_ends(buffer: _Bytes, begin: int, stop: int) -> tuple[int, list[tuple[int, bytes, bytes | None, int]]]:
    """Find the records that end the wait of a message of the timer, in bytes of the log from ``begin`` up to ``stop``.

    Returns where that ended, at ``stop`` or where no record stands, and of each: its commit log offset, what it has in
    TIMER_QUEUE_OFFSET, the unique key of the message, and of an operation its own queue offset, else -1.
    """

@final
class TimerHeap:
    """Due time and queue offset of messages that wait, the next one first; 16 bytes each."""

    def __len__(self) -> int: ...
    @property
    def next_due(self) -> int | None: ...
    def push(self, due_ms: int, queue_offset: int) -> None: ...
    def pop_due(self, now_ms: int, limit: int) -> list[tuple[int, int]]:
        """Take out up to ``limit`` that are due, the first one first."""
    def fill(self, entries: bytes, first: int, shared: Mapping, timer_at: int, bits: int) -> list[int]:
        """Take in the messages of some entries, the first one of queue offset ``first``, but for those that are done.

        Returns the queue offsets of those whose entries hold no time.
        """

@final
class TagSet:
    """Tags to deliver; empty for every message. ``passes``, if given, is asked about each one whose tag matches."""

    def __new__(cls, tags: Iterable[str], passes: Callable[[ReceivedMessage], bool] | None = None) -> Self: ...

def key_and_body_size(message: ReceivedMessage) -> tuple[bytes | None, int]:
    """Return the first key of a message, None without one, and how many bytes its body has."""

def note_latest(
    latest: dict[bytes, int],
    most: int,
    entries: bytes,
    at: int,
    first: int,
    topic: bytes,
    queue_id: int,
    part: _Bytes,
    base: int,
) -> tuple[int, int, int]:
    """Note in ``latest`` of each key where its last record stands, by consume queue entries from number ``at`` on.

    The entry of number 0 is of queue offset ``first``; ``part`` holds the bytes of the log from ``base`` on. At most
    ``most`` keys are noted. Returns the number where that ended, why, as :meth:`Collector.add_queue`, FULL for one key
    too many; and how many records have no key.
    """

@final
class QueueGrant:
    """One message queue, granted to one consumer of a group under one epoch."""

    queue: MessageQueue
    queue_slot_number: int
    group_queue: int
    """Number of its slot in the group-queue table."""
    epoch: int
    next_offset: int
    damaged: list[tuple[int, int, int]]
    skipped: int
    expired: int
    def __init__(
        self,
        shared: Mapping,
        group_queue_at: int,
        queue_at: int,
        queue_slot_number: int,
        queue: MessageQueue,
        epoch: int,
        files: _GrantFiles,
        tags: TagSet,
        *,
        group_queue: int,
        log_file_bytes: int,
        entries_per_file: int,
        timeout_ms: int,
        max_opened_body_bytes: int,
        compacted: Callable[[int], tuple[int, ReceivedMessage | None, int]] | None = None,
    ) -> None:
        """``compacted`` is for a compact topic: :class:`rmqclient.store.files.compacted_file.CompactedQueue`."""

    @property
    def committed_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    @property
    def has_more(self) -> bool: ...
    @property
    def valid(self) -> bool:
        """Whether nobody was granted the queue after this grant."""

    @property
    def paused(self) -> bool:
        """Whether the group is to take nothing from the queue."""

    @property
    def lease_until(self) -> int:
        """End of the lease, in ns on CLOCK_BOOTTIME; 0 without one."""

    @property
    def lease_is_over(self) -> bool:
        """Whether there is a lease and its end has passed: another member may be granted the queue at any moment."""

    @property
    def flow_control(self) -> int:
        """The number that :meth:`show` has written last, of this grant or of an earlier one."""

    def show(self, flow_control: int) -> None:
        """Write why the owner takes nothing just now, for display. Takes no lock: only the owner writes it."""

    def renew(self, lease_ms: int) -> bool:
        """Let the lease end ``lease_ms`` from now. Returns False and changes nothing when the epoch is old.

        Raises StoreBusy.
        """

    def release(self) -> bool:
        """Give the queue back. Returns False and changes nothing when the epoch is old. Raises StoreBusy."""

    def arm(self, lane: int) -> bool: ...
    def take(self, limit: int, span: int) -> list[ReceivedMessage]: ...
    def begin(self, message: ReceivedMessage) -> bool: ...
    has_unopened: bool
    """A batch was taken that cannot be opened: a message with :attr:`ReceivedMessage.unopened`."""
    def acknowledge(self, message: ReceivedMessage) -> bool:
        """Mark a message finished, and its record if it was the last one of a batch. False when the epoch is old."""
    def finish(self, messages: list[ReceivedMessage]) -> list[int]:
        """Mark messages finished inside of their batches; return the queue offsets to acknowledge now."""
    def acknowledge_offsets(self, offsets: list[int]) -> bool: ...

class _ArrowArray(Protocol):
    def __getitem__(self, number: int, /) -> object: ...

@final
class Stager:
    """Encodes the rows of one part as runs of staged records: whole but for what is known only when they are appended.

    ``queue_count_of`` returns how many queues a topic has, and raises when it is no topic to send to. ``topic`` is that
    of all rows; None: each names its own.
    """

    def __init__(
        self,
        queue_count_of: Callable[[str], int],
        *,
        topic: str | None,
        part: int,
        max_body_bytes: int,
        log_file_bytes: int,
        born_host: bytes,
        store_host: bytes,
    ) -> None: ...
    @property
    def rows(self) -> int:
        """How many rows were encoded."""

    @property
    def buffered(self) -> int:
        """Bytes that were not drained yet."""

    @property
    def size(self) -> int:
        """Bytes that were drained."""

    @property
    def digest(self) -> int:
        """CRC-32 of the bytes that were drained."""

    @property
    def content(self) -> int:
        """64 bits over the rows, in whatever order and parts they came."""

    @property
    def queue_counts(self) -> dict[str, int]:
        """How many queues each topic has that occurred."""

    def add(
        self,
        row: int,
        stop: int,
        most_bytes: int,
        *,
        value: _ArrowArray,
        key: _ArrowArray | None = None,
        topic: _ArrowArray | None = None,
        partition: _ArrowArray | None = None,
        tags: _ArrowArray | None = None,
        properties: _ArrowArray | None = None,
        born_timestamp: _ArrowArray | None = None,
    ) -> int:
        """Encode rows from ``row`` on, up to ``stop`` or until ``most_bytes`` are buffered; return where that ended.

        Each column is what ``__arrow_c_array__`` of its Arrow array returned: binary or string with 32 bit offsets,
        int32, ``map<string, string>``, timestamp in microseconds. Raises MessageRejected, BodyTooLarge and
        PropertiesTooLarge, which name the row, and what ``queue_count_of`` raises.
        """

    def drain(self, write: Callable[[memoryview], object]) -> None:
        """Hand over what is buffered, a run for each queue. A view is good until the call that gets it returns."""

@final
class Landed:
    """Which rows of a batch stand in the log already, found by their unique keys; ``len`` is their number.

    ``parts`` holds (first 8 bytes of the unique keys as a number, rows) of each part.
    """

    def __new__(cls, parts: list[tuple[int, int]]) -> Self: ...
    def __len__(self) -> int: ...
    def rows_of(self, prefix: int) -> int:
        """Return how many rows of one part were found. Raises KeyError."""

    def look(self, buffer: _Bytes, begin: int, stop: int) -> int:
        """Look at the valid records of one commit log file that begin below ``stop``; return where that ended.

        ``buffer`` holds the bytes of the log from ``begin`` on.
        """

def append_run(
    appender: Appender, content: _Bytes, position: int, prefix: int, landed: Landed | None = None
) -> tuple[int, int]:
    """Append the staged records of the run at ``position`` of ``content``, but for those that have landed.

    In sections of at most 256 KiB and 1,000 records, so that other senders wait no longer than for a batch of theirs.
    ``prefix`` becomes the first 8 bytes of each unique key. Returns where the next run begins, and how many records
    were appended. Raises ValueError when no run stands there, MessageRejected for a queue that the topic does not have,
    and what ``Appender.append`` raises; the sections before that are in the log.
    """

COLUMNS: tuple[str, ...]
"""Names of the columns that :class:`Columns` can have."""
STOPPED: dict[str, int]
"""Why a :class:`Collector` stopped; any other number is that of what it met in ``FOUND``.

END: what was given is at its end. SHORT: these bytes end before the record does. FULL: the columns hold a batch.
ELSEWHERE: the record is not inside of this part of the log. GAP: messages of the queue before this one were not met.
OTHER: a valid record, but not that of its entry.
"""

@final
class ColumnBuffer:
    """Bytes of an Arrow array, read-only."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

@final
class Columns:
    """Rows of the wanted columns, until they are taken as the buffers of Arrow arrays.

    A batch ends with ``rows`` rows, or with the row with which it has more than ``size`` bytes of variable size. Raises
    ValueError for a name that is none of ``COLUMNS``, and for limits that cannot be.

    A body that opens to more than ``max_opened_body_bytes``, or not at all, is null with ``null_unreadable``. Without,
    the collector that comes to it raises BodyUnreadable, which names queue and offsets.
    """

    def __new__(
        cls,
        names: tuple[str, ...],
        *,
        rows: int,
        size: int,
        max_opened_body_bytes: int = ...,
        null_unreadable: bool = False,
    ) -> Self: ...
    @property
    def rows(self) -> int:
        """Rows that were added and not taken yet."""

    def take(self) -> tuple[int, dict[str, tuple[int, list[ColumnBuffer | None]]]]:
        """Return the number of rows and, by column, how many are null and the buffers; begin anew.

        Buffers as the Arrow columnar format orders them, without a bitmap where nothing is null. Those of properties:
        the offsets, then offsets and data of the names, then of the values.
        """

@final
class Collector:
    """Adds messages to columns, those with one of some tags or all. Every record is checked first.

    What adds raises BodyUnreadable, unless the columns have null for it, and NotInstalled.
    """

    def __new__(cls, columns: Columns, *, tags: Iterable[str] = ()) -> Self: ...
    @property
    def columns(self) -> Columns: ...
    def add_entries(self, entries: bytes, at: int, first: int, topic: bytes, queue_id: int) -> tuple[int, int]:
        """Add what entries tell of their messages, from number ``at`` on; number 0 has the queue offset ``first``.

        Tags are not looked at. Returns the number where that ended, and why.
        """

    def add_queue(
        self, entries: bytes, at: int, first: int, topic: bytes, queue_id: int, part: _Bytes, base: int
    ) -> tuple[int, int]:
        """Add the messages of entries whose records stand in the part of the log from ``base`` on; as add_entries."""

    def want(self, queues: list[tuple[bytes, int, int, int]]) -> None:
        """Say of which queues ``add_log`` adds messages: (topic, queue id, first queue offset, end) of each."""

    def next_of(self, number: int) -> int:
        """Return below which queue offset all messages of a wanted queue were met, or are known to be missing."""

    def go_on(self, number: int, queue_offset: int) -> None:
        """Say that all messages of a wanted queue below an offset were met, or are known to be missing."""

    def add_log(self, part: _Bytes, base: int, file_end: int, start: int, stop: int) -> tuple[int, int, int, int]:
        """Add messages of wanted queues from the part of the log that begins at ``base``, of a file up to ``file_end``.

        Records of other queues are stepped over unchecked. Returns where in the log that ended, and why: END is
        ``stop``, or the end of the part or of the file. Then, for GAP, which of the wanted queues it is and the queue
        offset that was met, else -1.
        """
