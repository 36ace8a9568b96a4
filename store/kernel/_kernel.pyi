"""Types and documentation of the compiled kernel. Its rules stand in the docstring of ``_kernel.pyx``."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingLike
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import timedelta
from io import FileIO
from threading import Condition as _Condition
from threading import Lock
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeAlias, TypeVar, final

from rmqclient.store.message_queue import MessageQueue

_P = ParamSpec("_P")
_T = TypeVar("_T")

FINGERPRINT: int
"""Of the tables and numbers that the kernel was built with: :data:`rmqclient.store.layout.LAYOUT_FINGERPRINT`."""
CRC32_METHOD: str
SCHEDULE_TOPIC: str
TIMER_TOPIC: str
HALF_TOPIC: str
OPERATION_TOPIC: str
GIVEN_UP_TOPIC: str
DELAYS: list[str]
"""Delays of levels 1 to 18, as RocketMQ writes them."""
RESERVED_PROPERTIES: frozenset[str]

class _AppendFiles(Protocol):
    @property
    def rolled(self) -> Callable[[], None]: ...
    def log_files(self, size: int) -> tuple[Mapping, int, Mapping | None, int]: ...
    def queue_files(self, slot: int, count: int) -> tuple[Mapping, int, Mapping | None, int]: ...
    def repair(self) -> None: ...
    def check_room(self) -> None: ...
    @property
    def admit(self) -> Callable[[], int]: ...
    @property
    def replicated(self) -> Callable[[int], int]: ...
    def month(self, now_ms: int) -> tuple[int, int]: ...

class _GrantFiles(Protocol):
    def log_file(self, commit_log_offset: int) -> tuple[Mapping, int] | None: ...
    def queue_file(self, slot: int, queue_offset: int) -> tuple[Mapping, int] | None: ...
    def oldest(self, slot: int) -> int: ...

class _Lock(Protocol):
    def wait_exclusive(self, byte: int, timeout_s: float) -> None: ...
    def check_in_place(self) -> None: ...
    def busy_here(self, byte: int, waited_s: float) -> Exception: ...

class _StepsOf(Protocol, Generic[_T]):
    """Durable steps whose results have one type."""

    def __call__(self, name: str, function: Callable[_P, _T], /, *args: _P.args, **named: _P.kwargs) -> _T: ...
    async def run_async(
        self, name: str, function: Callable[_P, Awaitable[_T]], /, *args: _P.args, **named: _P.kwargs
    ) -> _T: ...
    def wait_for(self, name: str, timeout: timedelta | float | None = None) -> _T: ...

class _Steps(Protocol):
    """The durable steps of one message; docs/handling/steps.md describes them."""

    def __call__(self, name: str, function: Callable[_P, _T], /, *args: _P.args, **named: _P.kwargs) -> _T: ...
    def __getitem__(self, kind: type[_T]) -> _StepsOf[_T]: ...
    async def run_async(
        self, name: str, function: Callable[_P, Awaitable[_T]], /, *args: _P.args, **named: _P.kwargs
    ) -> _T: ...
    def sleep(
        self,
        duration: timedelta | float | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> None: ...
    def wait_for(self, name: str, timeout: timedelta | float | None = None) -> Any: ...

class _Handling(Protocol):
    """A thread or a coroutine that calls a handler."""

    def steps_of(self, message: ReceivedMessage) -> _Steps: ...

handling: ContextVar[_Handling | None]
"""What calls a handler in the running thread or coroutine: :attr:`ReceivedMessage.steps` asks it."""

def arm(point: int, passes: int, signal_number: int) -> None:
    """Let this process die by a signal when it comes to a crash point; it passes the point ``passes`` times first."""

def crc32(data: bytes | memoryview | Mapping, value: int = 0) -> int:
    """Return the CRC-32 of ``data``, as :func:`zlib.crc32`."""

def boottime() -> int:
    """Return CLOCK_BOOTTIME in ns: one clock for all processes, which counts time in suspend and never steps."""

def wall_clock() -> int:
    """Return the wall clock in ns since 1970, or the clock of a test that this process follows."""

def elapsed() -> int:
    """Return ns that only grow while this process follows one clock: CLOCK_BOOTTIME, or that of a test."""

def read_clock(words: Mapping) -> None:
    """Read from now on how far a test has moved the time, from words as layout.CLOCK. Once in a process."""

def delay_ms(level: int) -> int:
    """Return the delay of a level, in ms. Raises ValueError for a level that does not exist."""

def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``, 32 bits signed."""

MAX_INNER_MESSAGES: int
"""Largest number of messages in a batch that is one record."""

def inner_messages(record: ReceivedMessage) -> list[ReceivedMessage]:
    """Return the messages of a batch. Each one is a record of its own, in memory only.

    They have the position, the times and the hosts of the batch. Raises BodyUnreadable for a body that is damaged or
    opens to too many bytes, NotInstalled as :attr:`ReceivedMessage.body`, ValueError for a record that is not a batch.
    """

def decode(
    buffer: bytes | memoryview | Mapping,
    position: int,
    commit_log_offset: int,
    queue: MessageQueue | None = None,
) -> ReceivedMessage | int:
    """Return the valid record at ``position``, or the number in ``layout.FOUND`` of what stands there.

    Raises ValueError when ``position`` is outside of ``buffer``.
    """

def reserve_blocks(fd: int, size: int) -> bool:
    """Give the first bytes of a file blocks on the disk. False if the file system cannot. Raises OSError.

    Unlike ``posix_fallocate`` it never writes zeros in their place, which would undo a store of another process.
    """

def limit_resident(most: int) -> int:
    """Set how many bytes of files may be resident in this process before it lets go of pages; return what it was.

    At first 128 MiB. It looks after every 16 MiB that it has touched.
    """

def use_one_heap() -> None:
    """Let the threads that are started from now on allocate from the heap of the first one, and not from their own.

    glibc gives each of some threads a heap of its own, and what is freed in one of them serves nobody else: a process
    whose threads allocate now and then takes more memory the longer it runs. Elsewhere this does nothing. [mallopt(3)]
    """

@final
class LockOwner:
    """Who locks the mutexes of a runtime file for one opening; see :mod:`rmqclient.store.files.lock_owner`.

    Locks the byte of ``number`` by ``lock_file``, a descriptor that it closes when it is dropped. Raises OSError,
    EAGAIN when another one has the byte; then the descriptor stays open.
    """

    number: int
    """0 in a forked child."""
    def __new__(cls, lock_file: int, number: int) -> Self: ...
    def leave_to_parent(self) -> None:
        """Close the descriptor in a forked child, where every mutex of this owner raises PermissionError."""

@final
class Mapping:
    """A shared mapping of a whole file, a buffer. It keeps no descriptor; the last reference unmaps it."""

    size: int
    writable: bool
    reserved: int
    """Bytes from its begin that have blocks on the disk, as far as its user knows: all, if nobody says otherwise."""
    def __new__(cls, fd: int, size: int, *, writable: bool = True, path: bytes | None = None) -> Self:
        """Map an open file. With its path, a store that needs a block waits on a full disk, and is no SIGBUS."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...
    def populate(self, begin: int = 0, end: int | None = None) -> None:
        """Make pages of the file now and let the next flush write them; their bytes stay. All, if not told which.

        Raises ValueError for a ``begin`` within a page or a range outside the file, OSError when there is no memory.
        """

    def lock_as(self, owner: LockOwner) -> None:
        """Say once who locks the mutexes in this mapping; the owner lives as long as the mapping. Raises ValueError."""

    def has_reserve(self, path: bytes) -> None:
        """Say once at which path a file holds the room that all pages of this one may need. Raises ValueError."""

    def read_no_further(self) -> None:
        """Let the first touch of a page read that page only."""

    def is_cached(self, begin: int, end: int) -> bool:
        """Tell whether the host has bytes of the file in its page cache, without touching them.

        True where the kernel does not say: mincore(2) does not tell who neither owns the file nor may write it. Raises
        ValueError for a range outside the file.
        """

    def show(self, fd: int) -> None:
        """Map another file, as long as this one, to the same address; who reads meanwhile sees words of one of them."""

    def use(self, size: int) -> None:
        """Say that ``size`` bytes of it are about to be touched by other code than the kernel's.

        If more pages of files are resident than :func:`limit_resident` allows, the process then lets go of those of all
        mappings that were used. They stay in the page cache, and each is found again at its next touch.
        """

    def detach(self) -> None:
        """Map zeros over the file, so that its blocks can be freed. The address stays mapped. Raises OSError."""

@final
class Words:
    """Atomic access to the aligned native words of a mapping. Positions are bytes; ValueError outside."""

    def __new__(cls, mapping: Mapping) -> Self: ...
    def load(self, at: int) -> int: ...
    def store(self, at: int, value: int) -> None: ...
    def add(self, at: int, value: int) -> int:
        """Add to a word, and return its new value."""

    def replace(self, at: int, expected: int, desired: int) -> bool:
        """Set a word to ``desired`` if it is ``expected``; return whether it was."""

    def set_bits(self, at: int, bits: int) -> int:
        """Set bits of a word, and return its value before."""

    def load32(self, at: int) -> int: ...
    def store32(self, at: int, value: int) -> None: ...
    def wait(self, at: int, expected: int, timeout_ms: float) -> bool:
        """Sleep while a 32-bit word is ``expected``. Returns False when the time is up or a signal came."""

    def wait_adaptively(self, at: int, expected: int, timeout_ms: float) -> bool:
        """Do as :meth:`wait`; a thread whose last such wait was short looks at the word for 50 us before.

        A wait is short if it ends within 200 us. Looking in vain makes the thread sleep at once in the next 8 short
        waits. A thread that has one processor never looks. docs/decisions/0029 says why.
        """

    def signal(self, at: int) -> int:
        """Add 1 to a 32-bit word and wake every thread that waits on it; return how many were woken."""

@final
class RobustMutex:
    """A mutex in a mapping, for the rare paths that run Python while they hold it.

    Its holder is the owner that the mapping locks as, which is alive as long as its byte of the lock file is locked.
    When it is dead, a waiter takes the mutex, after 20 ms at most. Without an owner every call raises PermissionError.
    """

    def __new__(cls, mapping: Mapping, at: int) -> Self: ...
    def initialise(self) -> None:
        """Make the mutex, once, before others can see it."""

    def try_acquire(self) -> bool:
        """Take the mutex if it is free. Never looks whether the holder lives, which costs a system call."""

    def inherit(self) -> bool:
        """Take the mutex if its holder is dead."""

    def acquire(self, timeout_ms: int) -> None:
        """Raises StoreBusy after ``timeout_ms``."""

    def held(self, timeout_ms: int) -> AbstractContextManager[bool, None]:
        """Hold the mutex for a ``with`` block, which an exception from a signal handler cannot leave locked.

        Entering it raises StoreBusy after ``timeout_ms``.
        """

    def tried(self, *, from_dead: bool) -> AbstractContextManager[bool, None]:
        """Hold the mutex for a ``with`` block if it is free, or its holder dead; entering tells whether it is held."""

    def release(self) -> None: ...
    @property
    def owner(self) -> int:
        """Number of the owner that holds it, 0 when the mutex is free."""

    @property
    def process(self) -> int:
        """Id of the process that holds it, in its own PID namespace, 0 when the mutex is free. For people only."""

@final
class HeldMutex:
    """What :meth:`RobustMutex.held` and :meth:`RobustMutex.tried` return."""

    def __new__(cls, mutex: RobustMutex, timeout_ms: int, from_dead: bool) -> Self: ...
    def __enter__(self) -> bool: ...
    def __exit__(self, *_: object) -> None: ...

@final
class HeldByte:
    """What :meth:`rmqclient.store.files.file_lock.LockFile.held` returns."""

    def __new__(cls, lock: _Lock, file: FileIO, own: set[int], section: Lock, byte: int, timeout_s: float) -> Self: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...

@final
class Scope:
    """What a function returns that :func:`scope` made."""

    def __new__(cls, generator: Iterator[object]) -> Self: ...
    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool: ...

def scope(function: Callable[_P, Iterator[_T]]) -> Callable[_P, AbstractContextManager[_T, bool | None]]:
    """Make a context manager of a generator, as ``contextlib.contextmanager`` does, for one that holds locks.

    No line of Python runs between the generator and the ``with`` statement, so an exception from a signal handler comes
    inside of the generator or inside of the block: the generator's ``finally`` and ``with`` release what it holds.
    """

class Condition(_Condition):
    """A condition that no line of Python enters or leaves: no exception from a signal handler leaves it locked."""

@final
class Message:
    """One message to send.

    ``topic``: 1 to 127 characters of ``%a-zA-Z0-9_-``. ``body``: bytes are stored as they are, any other object is
    encoded as JSON when it is sent. ``tags``: one tag to filter by. ``keys``: words to find the message by, without
    spaces. ``properties``: strings of the application. ``flag``: a signed number of 32 bits. Sending checks
    them all; what is empty would not come back, and is refused.
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
        """What the record will say of the body: 0, or how it is compressed."""

    def with_body(self, body: bytes, sys_flag: int) -> Message:
        """Return this message with the body as it is stored, and the flag that its record gets. For producers."""

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
        """Commit log offset of the first byte of its record."""

    @property
    def commit_log_end(self) -> int:
        """Commit log offset of the first byte behind its record."""

    @property
    def is_duplicate(self) -> bool:
        """Whether ``send_once`` sent nothing, because the log had this message already."""

    @property
    def offset_message_id(self) -> str | None:
        """Address of the broker and commit log offset, as RocketMQ's ``offsetMsgId``; None for a store."""

    @property
    def replicated(self) -> bool | None:
        """Whether as many replicas as the store waits for have the message. None: the send waited for no replica.

        False: the store is set to go on without replicas, and has noted that they lack messages.
        """

def sent_result(
    queue: MessageQueue,
    queue_offset: int,
    commit_log_offset: int,
    commit_log_end: int,
    message_id: str,
    is_duplicate: bool = False,
    offset_message_id: str | None = None,
    replicated: bool | None = None,
) -> SendResult:
    """Return the result of a send that took place elsewhere."""

def duplicate_of(message: ReceivedMessage, queue: MessageQueue) -> SendResult:
    """Return where a message stands, as the result of a send that found it there."""

@final
class ReceivedMessage:
    """A message of the log. Each field is decoded when it is read."""

    @property
    def topic(self) -> str:
        """Its topic. A message from a retry topic shows the topic where it first failed [RETRY_TOPIC]."""

    @property
    def queue(self) -> MessageQueue:
        """The message queue it was taken from; for a retry, the queue of the retry topic."""

    @property
    def queue_id(self) -> int:
        """The number of its queue in its topic."""

    @property
    def queue_offset(self) -> int:
        """Its number in its queue, from 0."""

    @property
    def commit_log_offset(self) -> int:
        """The byte of the log at which its record begins."""

    @property
    def size(self) -> int:
        """Bytes of the whole record."""

    @property
    def body(self) -> bytes:
        """Its body as it was sent. A compressed body is opened once, and kept until the message is acknowledged.

        Raises BodyUnreadable when the body cannot be opened, or opens to more than :attr:`max_opened_body_bytes`;
        NotInstalled when the package that opens it is missing.
        """

    @property
    def stored_body(self) -> bytes:
        """The bytes of its body in the record: compressed, if the body is."""

    def open_body(self, limit: int = ...) -> bytes:
        """Return :attr:`body` without keeping it; at most ``limit`` bytes. Raises what :attr:`body` raises."""

    @property
    def max_opened_body_bytes(self) -> int:
        """Limit for an opened body: the setting of the store it was taken from; 64 MiB without a store."""

    def limited_to(self, max_opened_body_bytes: int) -> Self:
        """Set :attr:`max_opened_body_bytes`, and return this message."""

    @property
    def flag(self) -> int:
        """What the application gave as ``flag``; RocketMQ only keeps it."""

    @property
    def sys_flag(self) -> int:
        """RocketMQ's bits: whether the body is compressed, and what it is of a transaction."""

    @property
    def born_timestamp(self) -> int:
        """ms since 1970, by the producer's clock."""

    @property
    def store_timestamp(self) -> int:
        """ms since 1970, when it was stored."""

    @property
    def tags(self) -> str | None:
        """Its tag; None without one."""

    @property
    def tags_code(self) -> int:
        """The last field of its consume queue entry: the Java hash of its tag, 0 without a tag.

        For a message that waits in SCHEDULE_TOPIC_XXXX, and for most in the timer, the time in ms at which it is due.
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
        """The same as ``SendResult.message_id``; for a message without such an id, :attr:`offset_message_id`."""

    @property
    def offset_message_id(self) -> str:
        """Store host and commit log offset, as RocketMQ's ``offsetMsgId``."""

    @property
    def delivery_attempt(self) -> int:
        """1 for the first delivery. A delivery that ended with the death of its process counts, too."""

    @property
    def reconsume_times(self) -> int:
        """Delivery attempts before this record was stored."""

    def some_properties(self, names: tuple[bytes, ...]) -> dict[str, str]:
        """Return the named ones of :attr:`properties`, without decoding the others."""

    @property
    def steps(self) -> _Steps:
        """The durable steps of the handler that was called with this message; the first read looks them up.

        Raises HandlerError outside of the handler's call and for handlers that have no steps, NotOnCluster, StepsLost,
        and as a read of the store.
        """

    @property
    def inner_number(self) -> int:
        """Its number in the batch that it was sent in, from 0; 0 outside of a batch."""

    @property
    def unopened(self) -> Exception | None:
        """The reason why this record, a batch for a group, cannot be opened; None for every other message."""

    def check_opened(self) -> None:
        """Raise :attr:`unopened` unless it is None."""

    def redelivered(self, attempt: int = 0) -> ReceivedMessage:
        """Return the same message with its next delivery attempt, or with ``attempt`` if that is not 0."""

    @property
    def prepared_transaction_offset(self) -> int:
        """Commit log offset of the half message that this one was committed from; 0 without a transaction."""

    def as_delivered(self) -> ReceivedMessage:
        """Return the same message as a handler gets it: a retry and a half message show the topic they are for."""

    def record(self) -> bytes:
        """Return the bytes of the whole record."""

_Bytes: TypeAlias = bytes | bytearray | memoryview | Mapping

@final
class Dispatcher:
    """Checks records and their consume queue entries, and writes the entries that are not right.

    ``queue_file(topic, queue_id, queue_offset, commit_log_offset, end, is_checked)`` returns the mapped consume queue
    file that takes an entry, and the number of its first entry; or the queue offset to believe instead. ``end`` is the
    queue offset behind the last record dispatched, 0 before the first. ``is_checked`` says whether the record has a CRC
    over its queue offset. With None for ``queue_file``, entries are not looked at.
    """

    right_to: int
    """Every checked record below this commit log offset has a right entry."""
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

        Returns where the walk ended, and the number in ``layout.FOUND`` of what stands there: RECORD when all records
        up to ``stop`` are valid. Entries are compared with their records up to the first entry that is not right.
        """

    def dispatch(self, buffer: _Bytes, base: int, start: int, stop: int) -> int:
        """Dispatch the records of one commit log file up to ``stop``, or up to the first that is not valid.

        Returns the commit log offset where that ended.
        """

def index_key_hash(topic: str, key: str) -> int:
    """Return the hash under which the index has a key of a topic (IndexFile.indexKeyHashMethod)."""

def find_in_index(
    fd: int, slots: int, entries: int, key_hash: int, begin_ms: int, end_ms: int, after: int = 0
) -> tuple[list[int], int]:
    """Look in an index file for entries with a hash, stored in a period, the newest first.

    Returns the commit log offsets of at most 64, and the number of the entry to go on with, as ``after``; 0 at the end.
    A slot may point to an entry that was added and is not counted yet: it is whole and leads to the others. It reads a
    few bytes for each entry, and maps nothing: a page that is looked at once costs more to map than to read. Raises
    OSError.
    """

def index_records(
    buffer: _Bytes, base: int, start: int, stop: int, index: Mapping, slots: int, entries: int, done: int = 0
) -> tuple[int, int, bool]:
    """Add the keys of records of one commit log file to an index file.

    The file has the first ``done`` keys of the first record already. Returns the commit log offset where it ended, how
    many keys of the record there were added, and whether it ended because the index file is full.
    """

@final
class Matcher:
    """Walks over records, and compares each with its consume queue entry. It reads bytes, and writes none.

    ``entries_from(queue, queue_offset)`` returns the bytes of the entry of a message and of some behind it; none for an
    entry that cannot be read.
    """

    def __new__(cls, entries_from: Callable[[MessageQueue, int], bytes]) -> Self: ...
    @property
    def numbers(self) -> dict[MessageQueue, tuple[int, int]]:
        """The lowest queue offset of a record, and the one behind the highest, of each queue."""

    @property
    def matched(self) -> dict[MessageQueue, tuple[int, int]]:
        """From which queue offset, and up to which, each message has a record, in the order of the log, and its entry.

        It begins with the first record of the queue, and ends at the first that is not the next one, or has no right
        entry.
        """

    def walk(self, buffer: _Bytes, base: int, stop: int) -> tuple[int, int]:
        """Walk over the valid records of one commit log file, whose bytes from ``base`` on are ``buffer``.

        Returns where the walk ended, and the number in ``layout.FOUND`` of what stands there: RECORD when all records
        up to ``stop`` are valid.
        """

def slots_right_to(index: Mapping, slots: int, entries: int, slot: int) -> int:
    """Return the first slot of an index file, from ``slot`` on, that points to no entry; else ``slots``.

    A slot may be one ahead of the header, which is read after it: a process has just written its entry, or died after
    that.
    """

def chains_right_to(index: Mapping, slots: int, entries: int, number: int, stop: int) -> int:
    """Return the first entry of an index file, from ``number`` on, that follows no earlier one; else ``stop``."""

def keys_right_to(
    buffer: _Bytes, base: int, begin: int, index: Mapping, slots: int, entries: int, number: int, stop: int
) -> int:
    """Return the first entry of an index file, from ``number`` on, that is not seen to be right; else ``stop``.

    An entry is right when the record to which it points has a key of its hash, or is below ``begin``, where the log
    begins. ``buffer`` has the bytes of the log from ``base`` on, of one file; who points elsewhere is not seen.
    """

@final
class CallContext:
    """The context variables of the calls of one thread: each call begins with a copy of those of the thread."""

    def renew(self) -> None:
        """Enter a new copy of the thread's context, and leave that of the last call."""

    def leave(self) -> None:
        """Leave the context of the last call, if there is one."""

@final
class Running:
    """The running slot of one handler thread: what others must know of its call after a death, or at the next grant.

    The slot must be claimed: ``member`` and ``incarnation`` stand in it. Raises ValueError for an ``at`` outside of
    ``shared``.
    """

    def __init__(self, shared: Mapping, at: int, handling_at: int = 0) -> None:
        """``handling_at`` is the byte of the handling slot to which times are added; 0 for none."""

    def serve(self, group_queue: int, epoch: int) -> None:
        """Note the slot of the group-queue table that the next messages belong to, and the epoch of their grant."""

    def begin(self, message: ReceivedMessage) -> None:
        """Note, before the handler runs, which message it gets; enter a context of its own, as :class:`CallContext`."""

    def note(self, message: ReceivedMessage) -> None:
        """Note the same in a context that is entered already, as that of a coroutine's task."""

    def begin_batch(self, messages: list[ReceivedMessage]) -> None:
        """Do the same for one or more messages, in the order of their queue."""

    def show(self, messages: list[ReceivedMessage]) -> None:
        """Do the same for onlookers alone: the death of these messages is counted elsewhere."""

    def fail(self, messages: int) -> None:
        """Note that the call has ended, and that so many of its messages failed: their time counts as failed."""

    def forgive(self) -> None:
        """Note that a death from now on is no attempt of what runs. Does not touch the slot of another member."""

    def rest(self) -> None:
        """Note that no handler runs, and leave its context, in the thread that began.

        Does not touch the slot when it belongs to another member by now.
        """

    def release(self) -> None:
        """Give the slot back, unless it belongs to another member by now; adds the times up."""

    def add_up(self) -> None:
        """Add the times since the last call to the handler's slot of the handling table."""

def running_in(shared: Mapping, table_at: int, count: int, group_queue: int) -> list[int]:
    """Return the numbers of the running slots that name a message of one group-queue slot."""

def calls_in(shared: Mapping, table_at: int, count: int, group_queue: int) -> list[int]:
    """Return the numbers of the running slots whose handler runs with a message of one group-queue slot."""

@final
class Route:
    """The queues of one topic and their slots in the queue table, for an appender."""

    topic: str
    compact: bool
    settings: object
    """Those of the topic that the route was made for; None for a route that is good for ever."""
    def __init__(
        self,
        topic: str,
        queues: list[MessageQueue],
        slots: list[int],
        compact: bool = False,
        write_count: int | None = None,
        settings: object = None,
    ) -> None:
        """``write_count``: new messages go to the queues whose ids are below it; to all without it."""

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
        is_current: Callable[[Route], bool],
        encode_body: Callable[[object], bytes],
        *,
        log_file_bytes: int,
        entries_per_file: int,
        max_body_bytes: int,
        timeout_ms: int,
        busy_timeout_ms: int,
        queue_table_at: int,
        queue_slot_size: int,
        changes_at: int,
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
        """Append a message. With ``due_ms``, in ms since 1970, it waits in the timer, and the result says where there.

        Raises ValueError, MessageRejected, TimerFull, StoreFull, StoreBusy, StorePoisoned, LimitReached, DiskFailed.
        """
    def record_size(self, message: Message, sharding_key: str | None = None) -> int:
        """Return the size of a message's record in bytes. Raises what :meth:`append` raises for the message itself."""

    def queue_of(self, message: Message, sharding_key: str | None = None) -> int | None:
        """Return the number of the queue that a message must go to; None when the queues take turns."""

    def append_batch(
        self, messages: Iterable[Message], sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> list[SendResult]:
        """Append messages of one topic to one queue, in one append: all of them, or none.

        Raises BatchTooLarge when they do not fit into a commit log file or a consume queue file, TypeError for an
        object that is not a Message, MessageRejected for messages of several topics or queues, and what :meth:`append`
        raises.
        """

    def deliver(self, message: ReceivedMessage, topic: str, queue_id: int, progress_at: int) -> SendResult | None:
        """Append a message that waited in a delay level to its own queue. Only its position changes.

        The same append moves the word of the runtime file at byte ``progress_at`` from the message's queue offset to
        the next one: a death leaves both done, or neither. Returns None and changes nothing when the word has another
        value.

        Raises what :meth:`append_copy` raises, and ValueError when ``progress_at`` is not a word of the file.
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

        The result of each message has the position of the record. ``pack`` returns the compressed content, and the
        system flag that says how it is compressed.

        Raises MessageRejected for messages of several topics or tags; BatchTooLarge for more than ``most_bytes`` of
        content, for more messages than a batch holds, or when the compressed content is too long; PropertiesTooLarge
        when their keys are too long; and what :meth:`append` raises.
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
        """Append a message again, to queue ``queue_id`` of ``topic``, with exactly these properties in this order.

        Body, flag, ``sys_flag``, born time and both hosts stay. With a delay level of 1 to 18 (a higher level means 18)
        the copy waits in SCHEDULE_TOPIC_XXXX; with ``due_ms``, in ms since 1970, it waits in the timer. The result says
        where there, and the properties then have RocketMQ's order. The id of the result is the property ``UNIQ_KEY``.

        Raises ValueError for a negative level and for a level with a time, MessageRejected, PropertiesTooLarge,
        BodyTooLarge, TimerFull and what :meth:`append` raises.
        """

    def append_half(
        self, message: Message, group: str, sharding_key: str | None = None, immunity_s: int = 0
    ) -> SendResult:
        """Append the half message of a transaction. Its queue is chosen now, and does not show it until the commit.

        The result says where it stands in RMQ_SYS_TRANS_HALF_TOPIC. Raises what :meth:`append` raises.
        """

    def decide(
        self, half: ReceivedMessage, topic: str | None, queue_id: int, guards: MappingLike[int, int]
    ) -> SendResult | None:
        """Append the operation record of a half message; with a topic, the committed message before it, in one append.

        Returns None and changes nothing unless each word of the runtime file at a byte in ``guards`` has its value. The
        result says where the committed message stands; without a topic, where the operation record stands. Raises what
        :meth:`append_copy` raises, and ValueError for a byte that is not a word of the file, or for too many guards.
        """

    def pass_half(
        self,
        half: ReceivedMessage,
        topic: str,
        properties: MappingLike[str, str],
        progress_at: int,
        guards: MappingLike[int, int],
    ) -> SendResult | None:
        """Append a half message again, to the half topic or to TRANS_CHECK_MAX_TIME_TOPIC, with these properties.

        The same append moves the word at byte ``progress_at``, as in :meth:`deliver`. Returns None as :meth:`decide`
        does. In the half topic the message loses its flag and its attempts (renewHalfMessageInner).
        """

def deliver_timed(appender: Appender, message: ReceivedMessage, topic: str, queue_id: int) -> SendResult | None:
    """Append a message of the timer to its own queue, and count it as done in the same append.

    Returns None and changes nothing when the message is done already. Raises what :meth:`Appender.append_copy` raises.
    """

def roll_timed(appender: Appender, message: ReceivedMessage) -> SendResult | None:
    """Append a message of the timer at the end of the timer; as :func:`deliver_timed`. Raises TimerFull, too."""

def cancel_timed(appender: Appender, message: ReceivedMessage) -> SendResult | None:
    """Append the operation that cancels a message of the timer; as :func:`roll_timed`."""

def wait_ends(buffer: _Bytes, begin: int, stop: int) -> tuple[int, list[tuple[int, bytes, bytes | None, int]]]:
    """Find the records that end the wait of a message of the timer, in bytes of the log from ``begin`` up to ``stop``.

    Returns where that ended: at ``stop``, or at the first position without a record. Then for each record found: its
    commit log offset, its property TIMER_QUEUE_OFFSET, the unique key of the message, and the queue offset of the
    record itself if it is an operation, else -1.
    """

@final
class TimerHeap:
    """Due times in ms and queue offsets of waiting messages, the next one first; 16 bytes each."""

    def __len__(self) -> int: ...
    @property
    def next_due(self) -> int | None: ...
    def push(self, due_ms: int, queue_offset: int) -> None: ...
    def pop_due(self, now_ms: int, limit: int) -> list[tuple[int, int]]:
        """Take out up to ``limit`` messages that are due, in the order of their times."""

    def fill(self, entries: bytes, first: int, shared: Mapping, timer_at: int, bits: int) -> list[int]:
        """Add the messages of some entries that are not done; the first entry has the queue offset ``first``.

        Returns the queue offsets of the messages whose entries hold no time. Raises ValueError when there is no timer
        of ``bits`` messages at byte ``timer_at``.
        """

@final
class TagSet:
    """Tags to deliver; without tags, every message. ``passes`` is called with each message whose tag matches."""

    def __new__(cls, tags: Iterable[str], passes: Callable[[ReceivedMessage], bool] | None = None) -> Self: ...

def key_and_body_size(message: ReceivedMessage) -> tuple[bytes | None, int]:
    """Return the first key of a message, None for a message without keys, and the size of its body in bytes."""

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
    """Note in ``latest`` where the last record of each key stands, by consume queue entries from number ``at`` on.

    Entry number 0 has the queue offset ``first``; ``part`` holds the bytes of the log from ``base`` on. At most
    ``most`` keys are noted. Returns the number of the entry where that ended; why, as :meth:`Collector.add_queue`, and
    FULL for one key too many; and how many records have no key.
    """

@final
class QueueGrant:
    """One message queue, granted to one consumer of a group under one epoch."""

    queue: MessageQueue
    queue_slot_number: int
    """Number of the queue's slot in the queue table."""
    group_queue: int
    """Number of the group's slot for it in the group-queue table."""
    epoch: int
    next_offset: int
    """Queue offset where the next :meth:`take` begins."""
    damaged: list[tuple[int, int, int]]
    """(queue offset, commit log offset, number in ``layout.FOUND``) of damaged messages, for the caller to clear."""
    skipped: int
    """Messages that were finished because the tags do not want them."""
    expired: int
    """Messages that retention removed before they were taken, for the caller to report and set to 0."""
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
    def committed_offset(self) -> int:
        """Every message below it is finished."""

    @property
    def max_offset(self) -> int:
        """Queue offset of the next message to be sent."""

    @property
    def has_more(self) -> bool:
        """Whether there is a message at :attr:`next_offset`."""
    @property
    def valid(self) -> bool:
        """Whether nobody was granted the queue after this grant; of :meth:`lent_to`, whether the messages are lent."""

    def lent_to(self, running: Running) -> QueueGrant:
        """Return the grant by which a thread finishes the messages that it runs, when another member has the queue.

        It acknowledges as long as the owner of the queue leaves them to this call, whatever the epoch is meanwhile.
        """

    def is_between(self, running: Running) -> bool:
        """Whether a thread that serves this queue may be about to begin a message that its slot does not name yet."""

    def is_finished(self, offset: int) -> bool:
        """Whether a message is acknowledged."""

    def first_unfinished(self, offset: int) -> int:
        """Return how many messages at the head of a compressed batch are noted as finished."""

    @property
    def paused(self) -> bool:
        """Whether the group has paused the queue."""

    @property
    def lease_until(self) -> int:
        """End of the lease, in ns on CLOCK_BOOTTIME; 0 without one."""

    @property
    def lease_is_over(self) -> bool:
        """Whether there is a lease and its end has passed: another member may be granted the queue at any moment."""

    @property
    def flow_control(self) -> int:
        """The number that the last :meth:`show` wrote, perhaps by an earlier owner."""

    def show(self, flow_control: int) -> None:
        """Write why the owner takes nothing now, for display. Takes no lock: only the owner writes it."""

    def renew(self, lease_ms: int) -> bool:
        """Let the lease end ``lease_ms`` from now. Returns False and changes nothing when the epoch is old.

        Raises StoreBusy.
        """

    def release(self) -> bool:
        """Give the queue back. Returns False and changes nothing when the epoch is old. Raises StoreBusy."""

    def arm(self, lane: int) -> bool:
        """Ask the next sender to wake ``lane``. Returns True when a message is there already: do not sleep then."""

    def take(self, limit: int, span: int) -> list[ReceivedMessage]:
        """Return up to ``limit`` messages from :attr:`next_offset` on, all below ``committed_offset + span``.

        Leaves out finished messages, and finishes unwanted ones. Returns an empty list when the epoch is old. Raises
        StoreBusy, and what reading files raises.
        """

    def begin(self, message: ReceivedMessage) -> bool:
        """Count a delivery attempt before the handler runs, and set :attr:`ReceivedMessage.delivery_attempt`.

        For the one message that an ordered queue stands at: the count outlives this process. Returns False when the
        epoch is old. Raises StoreBusy.
        """

    has_unopened: bool
    """Whether a batch was taken that cannot be opened: a message with :attr:`ReceivedMessage.unopened`."""

    def acknowledge(self, message: ReceivedMessage) -> bool:
        """Mark a message finished; in a batch, its record when it is the last unfinished message.

        Returns False when the epoch is old: another member has the queue. Raises StoreBusy.
        """

    def finish(self, messages: list[ReceivedMessage]) -> list[int]:
        """Mark messages finished inside of their batches; return the queue offsets to acknowledge now."""

    def give_back(self, offsets: list[int], *, dead_lettered: bool) -> bool:
        """Finish messages that are stored elsewhere, as :meth:`acknowledge_offsets`; they do not count as handled."""

    def count_failed(self, attempts: int) -> None:
        """Count delivery attempts that failed."""

    def count_delivered(self, messages: int, size: int) -> None:
        """Count messages that were given to a member other than by :meth:`take`, and the size of their records."""

    def acknowledge_offsets(self, offsets: list[int]) -> bool:
        """Mark messages finished by their queue offsets, under one lock. Returns False when the epoch is old.

        Raises StoreBusy, and ValueError for an offset 2,048 or more above the committed offset.
        """

def settle_counters(shared: Mapping, group_queue_at: int) -> None:
    """Finish what an owner left that died with the mutex of a group-queue. The caller holds the mutex."""

def commit_offset(shared: Mapping, group_queue_at: int, queue_at: int, epoch: int, offset: int, timeout_ms: int) -> int:
    """Move the committed offset of a group-queue, forwards or back, if ``epoch`` is the present one.

    Returns 1; or 0, and changes nothing, when the epoch is old; or 2 when a seek must be finished first. Back, the
    group forgets what it has finished ahead; forwards, it also passes what others have finished from there on. Raises
    OffsetOutOfRange for an offset above the end of the queue, StoreBusy, and ValueError for no slots.
    """

class _ArrowArray(Protocol):
    def __getitem__(self, number: int, /) -> object: ...

@final
class Stager:
    """Encodes the rows of one part as runs of staged records, which lack only what the append knows.

    ``queue_count_of`` returns how many queues a topic has, and raises for a topic that nobody may send to. ``topic`` is
    the topic of all rows; with None each row names its own.
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
        """Rows that were encoded."""

    @property
    def buffered(self) -> int:
        """Bytes that :meth:`drain` will hand over."""

    @property
    def size(self) -> int:
        """Bytes that :meth:`drain` has handed over."""

    @property
    def digest(self) -> int:
        """CRC-32 of the bytes that :meth:`drain` has handed over."""

    @property
    def content(self) -> int:
        """64 bits over the rows, the same for every order of the rows and every division into parts."""

    @property
    def queue_counts(self) -> dict[str, int]:
        """Number of queues of each topic that occurred."""

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
        """Encode rows from ``row`` up to ``stop``, or until ``most_bytes`` are buffered; return the next row.

        Each column is what ``__arrow_c_array__`` of its Arrow array returned: binary or string with 32 bit offsets,
        int32, ``map<string, string>``, timestamp in microseconds. Raises MessageRejected, BodyTooLarge and
        PropertiesTooLarge, which name the row, and what ``queue_count_of`` raises.
        """

    def drain(self, write: Callable[[memoryview], object]) -> None:
        """Call ``write`` with each run that is buffered, one for each queue. The view is valid during the call only."""

@final
class Landed:
    """Which rows of a batch are in the log already, found by their unique keys; ``len`` is their number.

    ``parts`` holds (first 8 bytes of the unique keys as a number, rows) of each part.
    """

    def __new__(cls, parts: list[tuple[int, int]]) -> Self: ...
    def __len__(self) -> int: ...
    def rows_of(self, prefix: int) -> int:
        """Return how many rows of one part were found. Raises KeyError."""

    def look(self, buffer: _Bytes, begin: int, stop: int) -> int:
        """Look at the valid records of one commit log file that begin below ``stop``.

        ``buffer`` holds the bytes of the log from ``begin`` on. Returns the commit log offset where that ended.
        """

def append_run(
    appender: Appender, content: _Bytes, position: int, prefix: int, landed: Landed | None = None
) -> tuple[int, int]:
    """Append the staged records of the run at ``position`` of ``content`` that have not landed.

    Each append has at most 256 KiB and 1,000 records, so that other senders wait no longer than for a batch. ``prefix``
    becomes the first 8 bytes of each unique key. Returns where the next run begins, and how many records were appended.
    Raises ValueError when no run stands at ``position``, MessageRejected for a queue that the topic does not have, and
    what :meth:`Appender.append` raises. What was appended before an exception stays in the log.
    """

COLUMNS: tuple[str, ...]
"""Names of the columns of :class:`Columns`."""
STOPPED: dict[str, int]
"""Why a :class:`Collector` stopped. Any other number is the number in ``layout.FOUND`` of what it met.

END: the entries, or the part of the log, are at their end. SHORT: the bytes end before the record does. FULL: the
columns hold a batch. ELSEWHERE: the record is outside of this part of the log. GAP: earlier messages of the queue are
missing. OTHER: a valid record, but not the one its entry stands for.
"""

@final
class ColumnBuffer:
    """Bytes of an Arrow array, read-only."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

@final
class Columns:
    """Rows of the wanted columns, until they are taken as the buffers of Arrow arrays.

    A batch ends with ``rows`` rows, or with the row that brings it above ``size`` bytes of variable size. Raises
    ValueError for a name that is not in ``COLUMNS``, and for limits out of range.

    ``null_unreadable``: a body that cannot be opened, or opens to more than ``max_opened_body_bytes``, is null.
    Otherwise the collector that comes to it raises BodyUnreadable, which names queue and offsets.
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
        """Rows that :meth:`take` will return."""

    def come_from(self, broker_name: bytes, topic: bytes | None) -> None:
        """Set what the rows to come have as ``broker_name``, and as ``topic`` in place of the one in their records."""

    def take(self) -> tuple[int, dict[str, tuple[int, list[ColumnBuffer | None]]]]:
        """Return the number of rows and, by column, how many are null and the buffers; then begin a new batch.

        The buffers have the order of the Arrow columnar format; the bitmap is None when no value is null. The column
        properties has its offsets, then offsets and data of the names, then offsets and data of the values.
        """

@final
class Collector:
    """Adds messages to columns: those with one of ``tags``, or all without tags. It checks every record first.

    Methods that add raise BodyUnreadable, unless the columns put null there, and NotInstalled.
    """

    def __new__(cls, columns: Columns, *, tags: Iterable[str] = ()) -> Self: ...
    @property
    def columns(self) -> Columns: ...
    def add_entries(self, entries: bytes, at: int, first: int, topic: bytes, queue_id: int) -> tuple[int, int]:
        """Add the columns that entries alone can fill, from entry number ``at`` on; number 0 has the offset ``first``.

        Does not look at tags. Returns the number of the entry where that ended, and why.
        """

    def add_queue(
        self, entries: bytes, at: int, first: int, topic: bytes, queue_id: int, part: _Bytes, base: int
    ) -> tuple[int, int]:
        """Add the messages of entries, read from the part of the log at ``base``; otherwise as :meth:`add_entries`."""

    def add_pulled(
        self, body: _Bytes, at: int, topic: bytes, queue_id: int, first: int, stop: int, is_dense: bool
    ) -> tuple[int, int, int]:
        """Add the messages of a broker's answer from byte ``at`` on, with queue offsets in ``range(first, stop)``.

        Records stand one after the other, each with the commit log offset that it has in the broker. With ``is_dense``
        it stops (GAP) at a record with another queue offset than the next one. Returns the byte where it ended, why,
        and the next queue offset.
        """

    def want(self, queues: list[tuple[bytes, int, int, int]]) -> None:
        """Set the queues for :meth:`add_log`: topic, queue id, first queue offset and end of each."""

    def next_of(self, number: int) -> int:
        """Return the queue offset below which all messages of a wanted queue were met, or are known to be missing."""

    def go_on(self, number: int, queue_offset: int) -> None:
        """Set :meth:`next_of`: the caller knows that the messages below it are missing, or has them."""

    def add_log(self, part: _Bytes, base: int, file_end: int, start: int, stop: int) -> tuple[int, int, int, int]:
        """Add messages of wanted queues from the part of the log that begins at ``base``, in a file up to ``file_end``.

        Steps over records of other queues without a check. Returns where in the log that ended, and why: END at
        ``stop``, or at the end of the part or of the file. Then for GAP the number of the queue and the queue offset
        that was met, otherwise -1 and -1.
        """

def pulled(
    data: bytes, queue: MessageQueue | None, broker_name: str, delivered: bool, max_opened_body_bytes: int
) -> tuple[list[ReceivedMessage], int, int]:
    """See :func:`rmqclient.store.wire.decode_records`.

    Returns the messages, where reading ended, and the number in ``layout.FOUND`` of what stands there; RECORD: at the
    end.
    """

@final
class MessageIds:
    """Makes the ids of one process's messages.

    ``month(ms)`` returns begin and end of the month of a time; ``unique_prefix`` is the first 10 bytes of every id.
    """

    def __init__(self, month: Callable[[int], tuple[int, int]], unique_prefix: bytes) -> None: ...
    def next(self) -> str:
        """Return a new id of 32 hexadecimal digits."""

def stored_message(
    topic: str,
    body: object,
    tags: str | None,
    keys: Sequence[str],
    properties: MappingLike[str, str] | None,
    flag: int,
    sys_flag: int = 0,
) -> Message:
    """Return a message that was made before, whose tags are those that its maker was allowed."""

def encode_properties(message: Message, extra: MappingLike[str, str] | None = None) -> str:
    """See :func:`rmqclient.store.wire.encode_properties`. No ``UNIQ_KEY`` is made here."""

def encode_each(messages: list[Message], extras: list[MappingLike[str, str]]) -> list[bytes]:
    """See :func:`rmqclient.store.wire.encode_each`. No ``UNIQ_KEY`` is made here."""

def offset_id_bytes(text: str) -> bytes:
    """Return the bytes of an offset message id. Raises ValueError unless it has 32 or 56 hexadecimal digits."""

def sent_results(
    queue: MessageQueue, queue_offset: int, message_ids: list[str], offset_message_ids: list[str]
) -> list[SendResult]:
    """See :func:`rmqclient.store.wire.sent_results`."""

def append_received(
    appender: Appender,
    topic: str,
    queue_id: int,
    body: bytes,
    properties: bytes | str,
    *,
    flag: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
    reconsume_times: int = 0,
    delay_level: int = 0,
    due_ms: int = 0,
    half: bool = False,
) -> SendResult:
    """Append the message of a request as its client wrote it: body and properties byte for byte.

    ``properties``: name, byte 1, value, byte 2, for each. A missing last separator is added, then a ``UNIQ_KEY`` if
    there is none, then the CRC as for every record; a ``__CRC32#`` of the client is left out. ``born_host`` and
    ``store_host`` are an address and a port, 8 bytes or, for IPv6, 20. Of ``sys_flag`` the record keeps how the body is
    compressed, and that a transaction is committed. The result has an :attr:`SendResult.offset_message_id` with the
    store host.

    With a delay level (above 18 means 18) or ``due_ms`` the message waits as with :meth:`Appender.append`. ``half``: it
    is the half message of a transaction, for RMQ_SYS_TRANS_HALF_TOPIC.

    Raises MessageRejected for a queue that the topic does not have, for properties that are not UTF-8, and in a compact
    topic for a message without keys; ValueError for hosts of another size; and what :meth:`Appender.append` raises.
    """

def append_received_batch(
    appender: Appender,
    topic: str,
    queue_id: int,
    body: bytes,
    properties: bytes | str,
    *,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
    reconsume_times: int = 0,
) -> list[SendResult]:
    """Append the messages in the body of request 320, in one append: all of them, or none.

    ``properties`` are those of the request. They follow those of each message (MessageExtBatchEncoder.encode), but for
    a ``UNIQ_KEY``: each message keeps its own, or gets one.

    Raises MessageRejected, which names the position, for a body whose sizes do not add up; BatchTooLarge, and what
    :func:`append_received` raises.
    """

READ: dict[str, int]
"""How :meth:`RecordReader.read` ended; :class:`rmqclient.store.wire.ReadStatus`."""

@final
class RecordReader:
    """Reads the records of one queue as they stand in the log. One thread at a time reads; it needs no grant."""

    queue: MessageQueue
    damaged: list[tuple[int, int, int]]
    """As :attr:`QueueGrant.damaged`, for the caller to report and clear."""
    def __init__(
        self,
        shared: Mapping,
        queue_at: int,
        queue_slot_number: int,
        queue: MessageQueue,
        files: _GrantFiles,
        *,
        log_file_bytes: int,
        entries_per_file: int,
        max_opened_body_bytes: int,
        compacted: Callable[[int], tuple[int, ReceivedMessage | None, int]] | None = None,
    ) -> None: ...
    @property
    def max_offset(self) -> int:
        """Queue offset of the next message to be sent."""

    def read(
        self,
        offset: int,
        tags: TagSet,
        *,
        most_messages: int,
        most_bytes: int,
        most_looked_at: int,
        store_host: bytes | None = None,
        unwrap: bool = False,
    ) -> tuple[bytes, int, int, int]:
        """Return records from ``offset`` on, one behind the other; the next offset; their number; a number of ``READ``.

        At least one record is returned if one is wanted, then as many as fit into both limits. The CRC of each is
        checked; damaged ones are stepped over and noted in :attr:`damaged`. At most ``most_looked_at`` messages are
        looked at: NONE_WANTED with a next offset below :attr:`max_offset` means that there is more to look at.
        ``passes`` of the tags is called with each message whose tag matches.

        ``store_host`` (8 or 20 bytes) takes the place of the store host of each record, from which clients compute
        offset message ids; the CRC over the record is renewed. ``unwrap``: a batch of ours is returned as its messages,
        if it opens to at most 8 MiB. All of them have the queue offset of the batch, so a client that keeps messages by
        their queue offset, as Java's ordered consumer does, would see the last one only.

        Raises what reading files raises.
        """

@final
class PlainSends:
    """Answers requests 10 and 310 for messages of which nothing special is to be thought, from bytes to bytes.

    A request is plain if its header is written as clients write it, its queue exists, and no property of its message
    asks for a delay, a transaction, a reply, or has a name that only stores write. Everything else is left to Python,
    which also answers for every error: nothing was written then.

    ``queues_of`` returns how many queues of a topic such messages may go to, 0 for none. It is asked once for each
    topic, and again after the 32-bit word at byte ``changes_at`` of ``shared`` has changed. ``added``, a
    text of properties, ends those of each message; WAIT is left out, so a store that flushes each message needs another
    way.

    ``template`` makes an answer in JSON: texts, each with the number of what follows it: 1 opaque, 2 msgId, 3 queueId,
    4 queueOffset, 0 nothing. ``language``, ``version`` and ``tail``, more fields, are for binary answers.
    """

    is_enabled: bool
    """Whether requests are taken; False leaves all of them to Python."""

    def __init__(
        self,
        appender: Appender,
        shared: Mapping,
        changes_at: int,
        queues_of: Callable[[str], int],
        *,
        added: str,
        template: list[tuple[bytes, int]],
        language: int,
        version: int,
        tail: list[tuple[str, str]],
        most_frame_bytes: int,
    ) -> None: ...
    @property
    def sent(self) -> int:
        """Messages that were stored."""

    @property
    def bytes_sent(self) -> int:
        """Bytes of their bodies."""

    def take(self, data: bytes, at: int, born_host: bytes, store_host: bytes) -> tuple[bytes, int]:
        """Answer the plain sends that stand in ``data`` from ``at`` on, up to the first frame that is none.

        Returns their answers one behind the other, and where that frame begins. The hosts are those of the records, and
        ``store_host`` is part of the message ids. Raises ValueError for a position outside of ``data``.
        """

def found_in(data: memoryview, at: int, end: int) -> tuple[list[tuple[int, int, memoryview]], int]:
    """See :func:`rmqclient.store.wire.found_in`."""
