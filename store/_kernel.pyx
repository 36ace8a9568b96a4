# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False, auto_pickle=False
"""The compiled part of the store: loops over bytes, atomics, the append section, acknowledgements, futexes.

Rules of this file

1. What runs while a mutex between processes is held is a ``noexcept nogil`` function: no Python, no allocation,
   no I/O, so the compiler proves that it is short. The exception is :class:`RobustMutex`, for the rare paths.
2. Nobody blocks on such a mutex with the GIL held: a short try first, then slices without the GIL.
3. Entry points check their arguments once; below them positions are trusted.
4. Bytes that break the format are a return value, not an exception: the caller knows file and position.
5. A pointer into a mapping is used only while a Python reference to its :class:`Mapping` is held.

From top to bottom: constants, mapping, words and mutex, message, record, dispatch (``_dispatch.pxi``), running (``_running.pxi``), append, take and
acknowledge.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from cpython.weakref cimport PyWeakref_GetObject, PyWeakref_NewRef
from libc.errno cimport EBUSY, EINVAL, ESTALE, ETIMEDOUT, errno
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

import os
import sys

from store.errors import (
    BatchTooLarge,
    BodyTooLarge,
    MessageRejected,
    PageCacheBusy,
    PropertiesTooLarge,
    StoreBusy,
    StorePoisoned,
)

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef extern from "_crc32.h":
    void rmq_crc32_init() nogil
    uint32_t rmq_crc32(uint32_t crc, const unsigned char *data, size_t size) nogil
    const char *rmq_crc32_name()

cdef extern from "_shared_memory.h" nogil:
    int64_t get_i64(const unsigned char *at)
    int32_t get_i32(const unsigned char *at)
    int get_i16(const unsigned char *at)
    void put_i64(unsigned char *at, int64_t value)
    void put_i32(unsigned char *at, int32_t value)
    void put_i16(unsigned char *at, int value)
    uint64_t load64(const void *at)
    void store64(void *at, uint64_t value)
    uint32_t load32(const void *at)
    void store32(void *at, uint32_t value)
    void store64_seq(void *at, uint64_t value)
    uint64_t load64_seq(const void *at)
    uint64_t exchange64(void *at, uint64_t value)
    uint64_t or64(void *at, uint64_t bits)
    uint64_t add64(void *at, uint64_t value)
    uint32_t add32(void *at, uint32_t value)
    int replace64(void *at, uint64_t expected, uint64_t desired)
    void keep_program_order()
    void expect_write(void *at, uint64_t size)
    int lowest_bit(uint64_t word)
    int64_t wall_clock_ms()
    int64_t boottime_ns()
    int futex_wait(void *word, uint32_t expected, int64_t timeout_ns)
    int futex_wake(void *word, int count)
    int mutex_initialise(void *at)
    int mutex_try(void *at, int spins)
    int mutex_wait(void *at, int64_t timeout_ns)
    void mutex_release(void *at)
    int mutex_owner(const void *at)
    int armed_point
    int armed_signal
    long armed_passes
    void reach_point "reach"(int point)
    int MADV_POPULATE_WRITE, MADV_DONTNEED, MADV_RANDOM

cdef extern from "<sys/mman.h>" nogil:
    void *mmap(void *address, size_t length, int protection, int flags, int fd, long offset)
    int munmap(void *address, size_t length)
    int madvise(void *address, size_t length, int advice)
    int PROT_READ, PROT_WRITE, MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_NORESERVE
    void *MAP_FAILED


# --- constants, compared with store/layout.py when store is imported -------------------------------------------

cdef enum:
    # record
    R_TOTAL_SIZE = 0
    R_MAGIC = 4
    R_BODY_CRC = 8
    R_QUEUE_ID = 12
    R_FLAG = 16
    R_QUEUE_OFFSET = 20
    R_COMMIT_LOG_OFFSET = 28
    R_SYS_FLAG = 36
    R_BORN_TIMESTAMP = 40
    R_BORN_HOST = 48
    R_STORE_TIMESTAMP = 56
    R_STORE_HOST = 64
    R_RECONSUME_TIMES = 72
    R_PREPARED_OFFSET = 76
    R_BODY_SIZE = 84
    RECORD_HEADER_SIZE = 88
    RECORD_FIXED_SIZE = 91
    RECORD_MAGIC = -626843481
    BLANK_MAGIC = -875286124
    BLANK_SIZE = 8
    CRC_PROPERTY_SIZE = 20
    MAX_PROPERTIES_BYTES = 32767
    SYS_FLAG_BORN_HOST_V6 = 0x10
    SYS_FLAG_STORE_HOST_V6 = 0x20
    # consume queue entry
    ENTRY_SIZE = 20
    E_SIZE = 8
    E_TAGS_CODE = 12
    # runtime header
    H_APPEND_MUTEX = 192
    H_APPEND_STAGE = 256
    H_APPEND_FROM = 264
    H_WRITTEN_TO = 272
    H_LAST_STORE_TIMESTAMP = 280
    H_PUBLISHED_TO = 288
    H_PROGRESS_AT = 296
    H_PROGRESS_TO = 304
    H_POISONED = 392
    H_DISK_FULL = 408
    H_MIN_OFFSET = 512
    H_PREPARE_WORD = 528
    ARRIVAL_LANES_AT = 4096
    ARRIVAL_LANE_STRIDE = 64
    # queue slot
    Q_TOPIC_SIZE = 4
    Q_TOPIC = 8
    Q_MAX_OFFSET = 192
    Q_MIN_OFFSET = 200
    Q_WAITING_LANES = 208
    # group-queue slot
    G_MUTEX = 192
    G_EPOCH = 256
    G_COMMITTED = 288
    G_ADVANCE_TO = 296
    G_TAKEN_TO = 304
    G_ACKNOWLEDGED = 320
    G_HELD_OFFSET = 584
    G_HELD_ATTEMPTS = 592
    ACK_WINDOW = 2048
    MOST_ATTEMPTS = 2147483646

LAYOUT = {
    "record.total_size": R_TOTAL_SIZE, "record.magic": R_MAGIC, "record.body_crc": R_BODY_CRC,
    "record.queue_id": R_QUEUE_ID, "record.flag": R_FLAG, "record.queue_offset": R_QUEUE_OFFSET,
    "record.commit_log_offset": R_COMMIT_LOG_OFFSET, "record.sys_flag": R_SYS_FLAG,
    "record.born_timestamp": R_BORN_TIMESTAMP, "record.born_host": R_BORN_HOST,
    "record.store_timestamp": R_STORE_TIMESTAMP, "record.store_host": R_STORE_HOST,
    "record.reconsume_times": R_RECONSUME_TIMES, "record.prepared_transaction_offset": R_PREPARED_OFFSET,
    "record.body_size": R_BODY_SIZE, "record.size_of": RECORD_HEADER_SIZE,
    "entry.size": E_SIZE, "entry.tags_code": E_TAGS_CODE, "entry.size_of": ENTRY_SIZE,
    "header.append_mutex": H_APPEND_MUTEX, "header.append_stage": H_APPEND_STAGE,
    "header.append_from": H_APPEND_FROM, "header.written_to": H_WRITTEN_TO,
    "header.last_store_timestamp": H_LAST_STORE_TIMESTAMP, "header.published_to": H_PUBLISHED_TO,
    "header.progress_at": H_PROGRESS_AT, "header.progress_to": H_PROGRESS_TO,
    "header.poisoned": H_POISONED, "header.disk_full": H_DISK_FULL,
    "header.min_offset": H_MIN_OFFSET, "header.prepare_word": H_PREPARE_WORD,
    "queue.topic_size": Q_TOPIC_SIZE, "queue.topic": Q_TOPIC,
    "queue.max_offset": Q_MAX_OFFSET, "queue.min_offset": Q_MIN_OFFSET, "queue.waiting_lanes": Q_WAITING_LANES,
    "group_queue.mutex": G_MUTEX, "group_queue.epoch": G_EPOCH, "group_queue.committed_offset": G_COMMITTED,
    "group_queue.advance_to": G_ADVANCE_TO, "group_queue.taken_to": G_TAKEN_TO,
    "group_queue.acknowledged": G_ACKNOWLEDGED,
    "group_queue.held_offset": G_HELD_OFFSET, "group_queue.held_attempts": G_HELD_ATTEMPTS,
    "RECORD_MAGIC": RECORD_MAGIC, "BLANK_MAGIC": BLANK_MAGIC, "RECORD_FIXED_SIZE": RECORD_FIXED_SIZE,
    "CRC_PROPERTY_SIZE": CRC_PROPERTY_SIZE, "MAX_PROPERTIES_BYTES": MAX_PROPERTIES_BYTES,
    "ARRIVAL_LANES_AT": ARRIVAL_LANES_AT, "ARRIVAL_LANE_STRIDE": ARRIVAL_LANE_STRIDE, "ACK_WINDOW": ACK_WINDOW,
}

cdef enum:  # header.append_stage
    IDLE = 0
    COPYING = 1
    RECORDED = 2

cdef enum:  # store.crash_points.CrashPoint
    AT_APPEND_LOCKED = 1
    AT_APPEND_ANNOUNCED = 2
    AT_BLANK_WRITTEN = 3
    AT_RECORD_HALF_COPIED = 4
    AT_RECORDS_COPIED = 5
    AT_RECORDS_ANNOUNCED = 6
    AT_ENTRY_HALF_WRITTEN = 7
    AT_ENTRIES_WRITTEN = 8
    AT_RECORDS_PUBLISHED = 9
    AT_QUEUE_PUBLISHED = 10
    AT_APPEND_FINISHED = 11
    AT_PROGRESS_ADVANCED = 12
    AT_ACK_LOCKED = 20
    AT_ACK_MARKED = 21
    AT_ACK_ADVANCING = 22
    AT_ACK_CLEARED = 23
    AT_ACK_FINISHED = 24
    AT_INDEX_SLOT_WRITTEN = 30

rmq_crc32_init()
CRC32_METHOD = rmq_crc32_name().decode()


def arm(int point, long passes, int signal_number):
    global armed_point, armed_signal, armed_passes
    armed_passes = passes
    armed_signal = signal_number
    armed_point = point


def crc32(data, uint32_t value=0):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            value = rmq_crc32(value, <const unsigned char *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return value


def boottime():
    return boottime_ns()


cdef int32_t hash_utf8(const unsigned char *at, Py_ssize_t size, uint32_t value=0) noexcept nogil:
    """Java's ``String.hashCode``: over UTF-16 units, so a character beyond U+FFFF counts as two.

    ``value`` is the hash of the text before.
    """
    cdef uint32_t unit
    cdef const unsigned char *end = at + size
    while at < end:
        if at[0] < 0x80:
            unit = at[0]
            at += 1
        elif at[0] < 0xE0 and at + 1 < end:
            unit = (at[0] & 0x1F) << 6 | (at[1] & 0x3F)
            at += 2
        elif at[0] < 0xF0 and at + 2 < end:
            unit = (at[0] & 0x0F) << 12 | (at[1] & 0x3F) << 6 | (at[2] & 0x3F)
            at += 3
        elif at + 3 < end:
            unit = ((at[0] & 0x07) << 18 | (at[1] & 0x3F) << 12 | (at[2] & 0x3F) << 6 | (at[3] & 0x3F)) - 0x10000
            value = 31 * value + (0xD800 | (unit >> 10))
            unit = 0xDC00 | (unit & 0x3FF)
            at += 4
        else:
            break
        value = 31 * value + unit
    return <int32_t>value


def java_hash(str text not None):
    cdef Py_ssize_t size = 0
    cdef const char *at = PyUnicode_AsUTF8AndSize(text, &size)
    return hash_utf8(<const unsigned char *>at, size)


# --- mapping ---------------------------------------------------------------------------------------------------

@cython.final
cdef class Mapping:
    """A shared mapping of a whole file. It keeps no descriptor, and is unmapped when the last reference goes."""

    cdef unsigned char *address
    cdef object __weakref__
    cdef readonly Py_ssize_t size
    cdef readonly bint writable

    def __cinit__(self, int fd, Py_ssize_t size, *, bint writable=True):
        cdef void *address
        if size <= 0:
            raise ValueError(f"size={size}: a mapping needs at least one byte")
        address = mmap(NULL, size, PROT_READ | PROT_WRITE if writable else PROT_READ, MAP_SHARED, fd, 0)
        if address == MAP_FAILED:
            raise OSError(errno, os.strerror(errno))
        self.address = <unsigned char *>address
        self.size = size
        self.writable = writable

    def __dealloc__(self):
        global unmapped
        if self.address != NULL:
            unmapped += 1
            munmap(self.address, self.size)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.address, self.size, not self.writable, flags)

    def __len__(self):
        return self.size

    def read_no_further(self):
        """Let the first touch of a page bring in that page only, and not 128 KiB around it, which may be all zeros."""
        if madvise(self.address, self.size, MADV_RANDOM):
            raise OSError(errno, os.strerror(errno))

    def populate(self):
        """Make every page of the file now, in one call instead of a fault for each."""
        cdef int failure
        with nogil:
            failure = madvise(self.address, self.size, MADV_POPULATE_WRITE)
        if failure and errno != EINVAL:  # EINVAL: a kernel before 5.14; pages are then made at first touch
            raise OSError(errno, os.strerror(errno))

    def detach(self):
        """Put zeros in the place of the file, so that the blocks of a removed file are given back.

        The address stays mapped: whoever reads there meanwhile finds zeros, and no signal.
        """
        cdef void *address
        with nogil:
            address = mmap(self.address, self.size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        if address == MAP_FAILED:
            raise OSError(errno, os.strerror(errno))


cdef uint64_t unmapped = 1  # by this process, counted under the GIL: an address noted at the same count is still one


cdef tuple borrowed(tuple files):
    """Return (Mapping, begin[, Mapping or None, begin]) with weak references: the mapping cache may let go of them.

    A process may use more files than it can map. Who uses one from time to time borrows it, and asks again when it is
    gone, so that the cache's limit is a limit of all.
    """
    return tuple([PyWeakref_NewRef(part, None) if isinstance(part, Mapping) else part for part in files])


cdef Mapping lent(tuple files, int number):
    """Return a borrowed mapping, None when it is gone. Whoever points into it holds what this returns."""
    cdef PyObject *found
    if files is None or files[number] is None:
        return None
    found = PyWeakref_GetObject(files[number])
    return None if found == <PyObject *>None else <Mapping>found


# --- words and mutex: for what is written in Python ------------------------------------------------------------

@cython.final
cdef class Words:
    """Atomic access to the aligned native words of a mapping. Positions are bytes."""

    cdef Mapping mapping

    def __cinit__(self, Mapping mapping not None):
        self.mapping = mapping

    cdef unsigned char *word(self, Py_ssize_t at, int size) except NULL:
        if at < 0 or at + size > self.mapping.size or at % size:
            raise ValueError(f"byte {at} is no aligned word of {size} bytes in {self.mapping.size}")
        return self.mapping.address + at

    def load(self, Py_ssize_t at):
        return load64(self.word(at, 8))

    def store(self, Py_ssize_t at, uint64_t value):
        store64(self.word(at, 8), value)

    def add(self, Py_ssize_t at, uint64_t value):
        return add64(self.word(at, 8), value)

    def replace(self, Py_ssize_t at, uint64_t expected, uint64_t desired):
        return bool(replace64(self.word(at, 8), expected, desired))

    def set_bits(self, Py_ssize_t at, uint64_t bits):
        return or64(self.word(at, 8), bits)

    def load32(self, Py_ssize_t at):
        return load32(self.word(at, 4))

    def store32(self, Py_ssize_t at, uint32_t value):
        store32(self.word(at, 4), value)

    def wait(self, Py_ssize_t at, uint32_t expected, int64_t timeout_ms):
        cdef unsigned char *word = self.word(at, 4)
        cdef int changed
        with nogil:
            changed = futex_wait(word, expected, timeout_ms * 1000000)
        return bool(changed)

    def signal(self, Py_ssize_t at):
        cdef unsigned char *word = self.word(at, 4)
        cdef int woken
        with nogil:
            add32(word, 1)
            woken = futex_wake(word, 2147483647)
        return woken


@cython.final
cdef class RobustMutex:
    """A robust mutex in a mapping, for the rare paths that run Python while they hold it."""

    cdef Mapping mapping
    cdef void *at

    def __cinit__(self, Mapping mapping not None, Py_ssize_t at):
        if at < 0 or at + 64 > mapping.size or at % 64:
            raise ValueError(f"byte {at} cannot hold a mutex in {mapping.size}")
        self.mapping = mapping
        self.at = mapping.address + at

    def initialise(self):
        cdef int failure = mutex_initialise(self.at)
        if failure:
            raise OSError(failure, os.strerror(failure))

    def try_acquire(self):
        cdef int failure = mutex_try(self.at, 0)
        if failure and failure != EBUSY:
            raise OSError(failure, os.strerror(failure))
        return failure == 0

    def acquire(self, int64_t timeout_ms):
        cdef int failure = mutex_try(self.at, 0)
        if failure == EBUSY:
            with nogil:
                failure = mutex_wait(self.at, timeout_ms * 1000000)
        if failure == ETIMEDOUT:
            raise StoreBusy(f"waited {timeout_ms} ms for a mutex held by thread {mutex_owner(self.at)}")
        if failure:
            raise OSError(failure, os.strerror(failure))

    def release(self):
        mutex_release(self.at)

    @property
    def owner(self):
        return mutex_owner(self.at)


# --- message ---------------------------------------------------------------------------------------------------

# RocketMQ keeps these for itself (MessageConst.STRING_HASH_SET); an application cannot set them as properties.
RESERVED_PROPERTIES = frozenset(
    "KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID "
    "ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY "
    "EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET "
    "TRAN_PREPARED_QUEUE_OFFSET TRANSACTION_CHECK_TIMES CHECK_IMMUNITY_TIME_IN_SECONDS __SHARDINGKEY __CRC32#".split()
)


@cython.final
@cython.freelist(256)
cdef class Message:
    """One message to send."""

    cdef readonly str topic
    cdef readonly object body
    cdef readonly str tags
    cdef readonly tuple keys
    cdef readonly dict properties
    cdef readonly int flag

    def __init__(self, str topic not None, object body, *, str tags=None, object keys=(), object properties=None,
                 int flag=0):
        self.topic = topic
        self.body = body
        self.tags = tags
        self.keys = (keys,) if isinstance(keys, str) else tuple(keys)
        self.properties = None if properties is None else dict(properties)
        self.flag = flag

    def __repr__(self):
        size = f"{len(self.body)} B" if isinstance(self.body, bytes) else type(self.body).__name__
        return f"Message({self.topic!r}, <{size}>, tags={self.tags!r}, keys={self.keys!r})"

    def __eq__(self, other):
        return isinstance(other, Message) and self._fields() == (<Message>other)._fields()

    __hash__ = None

    cdef tuple _fields(self):
        return self.topic, self.body, self.tags, self.keys, self.properties or {}, self.flag

    def __reduce__(self):
        return _message, (self.topic, self.body, self.tags, self.keys, self.properties, self.flag)


def _message(topic, body, tags, keys, properties, flag):
    return Message(topic, body, tags=tags, keys=keys, properties=properties, flag=flag)


@cython.final
@cython.no_gc  # refers to a queue and nothing that could refer back
@cython.freelist(256)
cdef class SendResult:
    """Where a sent message stands."""

    cdef readonly object queue
    cdef readonly uint64_t queue_offset
    cdef readonly uint64_t commit_log_offset
    cdef readonly uint64_t commit_log_end
    cdef char unique_key[32]
    cdef str foreign_key                # of a message that another client made, when it has not 32 bytes; else None

    @property
    def message_id(self):
        return self.unique_key[:32].decode("ascii") if self.foreign_key is None else self.foreign_key

    def __repr__(self):
        return (f"SendResult(message_id={self.message_id!r}, queue={self.queue!r}, "
                f"queue_offset={self.queue_offset}, commit_log_offset={self.commit_log_offset})")

    def __eq__(self, other):
        return isinstance(other, SendResult) and self.__reduce__() == other.__reduce__()

    __hash__ = None

    def __reduce__(self):
        return _send_result, (
            self.queue, self.queue_offset, self.commit_log_offset, self.commit_log_end, self.message_id)


def _send_result(queue, queue_offset, commit_log_offset, commit_log_end, str message_id not None):
    cdef SendResult result = SendResult.__new__(SendResult)
    result.queue = queue
    result.queue_offset = queue_offset
    result.commit_log_offset = commit_log_offset
    result.commit_log_end = commit_log_end
    name_result(result, message_id)
    return result


cdef int name_result(SendResult result, str message_id) except -1:
    cdef bytes unique_key = message_id.encode()
    if len(unique_key) == 32 and message_id.isascii():
        memcpy(result.unique_key, PyBytes_AS_STRING(unique_key), 32)
    else:
        result.foreign_key = message_id
    return 0


# --- record ----------------------------------------------------------------------------------------------------

cdef enum:  # what stands at a position; store/record.py gives them their types
    IS_RECORD = 0
    IS_BLANK = 1
    IS_END = 2           # zeros: nothing was written here
    IS_SHORT = 3         # the bytes end before the record does
    BAD_MAGIC = 4
    BAD_SIZE = 5         # or another number that no record has
    BAD_OFFSET = 6
    BAD_BODY_CRC = 7
    BAD_CRC = 8
    BAD_TOPIC = 9        # a topic is the name of a directory: no record may choose one elsewhere

FOUND = {
    "RECORD": IS_RECORD, "BLANK": IS_BLANK, "END": IS_END, "SHORT": IS_SHORT, "BAD_MAGIC": BAD_MAGIC,
    "BAD_SIZE": BAD_SIZE, "BAD_OFFSET": BAD_OFFSET, "BAD_BODY_CRC": BAD_BODY_CRC, "BAD_CRC": BAD_CRC, "BAD_TOPIC": BAD_TOPIC,
}

cdef unsigned char TOPIC_BYTES[256]  # 1 for what RocketMQ allows in a topic (TopicValidator)
memset(TOPIC_BYTES, 0, 256)
for _allowed in bytearray(b"%|_-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"):
    TOPIC_BYTES[_allowed] = 1


cdef struct Frame:
    Py_ssize_t size
    Py_ssize_t body_at
    Py_ssize_t body_size
    Py_ssize_t topic_at
    Py_ssize_t topic_size
    Py_ssize_t properties_at
    Py_ssize_t properties_size


cdef void put_crc_property(unsigned char *at, uint32_t crc) noexcept nogil:
    """``__CRC32#`` as RocketMQ 5.2 writes it (MessageDecoder.createCrc32): digits, the least significant first."""
    cdef uint32_t low = crc % 100000
    cdef uint32_t high = crc // 100000
    cdef int digit
    memcpy(at, b"__CRC32#\x01", 9)
    for digit in range(5):  # two chains of divisions at once: each waits for its last one
        at[9 + digit] = <unsigned char>(48 + low % 10)
        at[14 + digit] = <unsigned char>(48 + high % 10)
        low = low // 10
        high = high // 10
    at[19] = 2


cdef int64_t ten_digits(const unsigned char *at) noexcept nogil:
    """Number of ten digits, the least significant first; -1 when one of them is none. Eight of them are read at once."""
    cdef uint64_t digits = <uint64_t>get_i64(at)  # big-endian: the most significant one is in the lowest byte
    cdef unsigned int ninth = at[8] - 48
    cdef unsigned int tenth = at[9] - 48
    if (digits & 0xF0F0F0F0F0F0F0F0ULL | (digits + 0x0606060606060606ULL & 0xF0F0F0F0F0F0F0F0ULL) >> 4) != 0x3333333333333333ULL:
        return -1
    if ninth > 9 or tenth > 9:
        return -1
    digits = (digits & 0x0F0F0F0F0F0F0F0FULL) * 2561 >> 8               # pairs: 10 * lower + higher
    digits = (digits & 0x00FF00FF00FF00FFULL) * 6553601 >> 16           # fours
    digits = (digits & 0x0000FFFF0000FFFFULL) * 42949672960001ULL >> 32
    return <int64_t>digits + 100000000 * <int64_t>ninth + 1000000000 * <int64_t>tenth


cdef int check_crc_property(const unsigned char *at, Py_ssize_t size) noexcept nogil:
    """1 when the record ends with its ``__CRC32#``, 0 when with none (as by a 4.9 broker), -1 when with a wrong one.

    Right digits behind a wrong name are a damaged name: without this, a flipped bit in the name would hide the CRC.
    """
    cdef const unsigned char *found = at + size - CRC_PROPERTY_SIZE
    cdef bint named = memcmp(found, b"__CRC32#\x01", 9) == 0
    cdef uint32_t expected = rmq_crc32(0, at, size - CRC_PROPERTY_SIZE) & 0x7FFFFFFF
    if found[CRC_PROPERTY_SIZE - 1] == 2 and ten_digits(found + 9) == <int64_t>expected:
        return 1 if named else -1
    return -1 if named else 0


cdef bint is_utf8(const unsigned char *at, Py_ssize_t size) noexcept nogil:
    """Whether the bytes are what Java writes for a string: UTF-8, the shortest form, without surrogates."""
    cdef Py_ssize_t number
    cdef int left = 0  # bytes that the present character still needs
    cdef unsigned char byte, low = 0x80, high = 0xBF
    for number in range(size):
        byte = at[number]
        if left:
            if not low <= byte <= high:
                return False
            low, high = 0x80, 0xBF
            left -= 1
        elif byte >= 0x80:
            if not 0xC2 <= byte <= 0xF4:
                return False
            left = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
            low = 0xA0 if byte == 0xE0 else 0x90 if byte == 0xF0 else 0x80
            high = 0x9F if byte == 0xED else 0x8F if byte == 0xF4 else 0xBF
    return left == 0


cdef int frame_of(const unsigned char *at, Py_ssize_t available, int64_t commit_log_offset, Frame *frame) noexcept nogil:
    """Find out what stands at ``at``, by all but the CRC; fill ``frame`` when it is a record."""
    cdef Py_ssize_t position = R_BORN_HOST
    cdef int32_t magic, sys_flag
    cdef Py_ssize_t number
    if available < BLANK_SIZE:
        return IS_SHORT if available > 0 else IS_END
    frame.size = get_i32(at)
    magic = get_i32(at + R_MAGIC)
    if magic == BLANK_MAGIC:
        return IS_BLANK
    if magic == 0 and frame.size == 0:
        return IS_END
    if magic != RECORD_MAGIC:
        return BAD_MAGIC
    if frame.size < RECORD_FIXED_SIZE:
        return BAD_SIZE
    if frame.size > available:
        return IS_SHORT
    sys_flag = get_i32(at + R_SYS_FLAG)
    position = RECORD_HEADER_SIZE - 4
    if sys_flag & SYS_FLAG_BORN_HOST_V6:
        position += 12
    if sys_flag & SYS_FLAG_STORE_HOST_V6:
        position += 12
    if position + 7 > frame.size:
        return BAD_SIZE
    frame.body_size = get_i32(at + position)
    frame.body_at = position + 4
    if frame.body_size < 0 or frame.body_at + frame.body_size + 3 > frame.size:
        return BAD_SIZE
    position = frame.body_at + frame.body_size
    frame.topic_size = at[position]
    frame.topic_at = position + 1
    if frame.topic_size > 127 or frame.topic_at + frame.topic_size + 2 > frame.size:
        return BAD_SIZE
    position = frame.topic_at + frame.topic_size
    frame.properties_size = get_i16(at + position)
    frame.properties_at = position + 2
    if frame.properties_size < 0 or frame.properties_at + frame.properties_size != frame.size:
        return BAD_SIZE
    if get_i64(at + R_COMMIT_LOG_OFFSET) != commit_log_offset:
        return BAD_OFFSET
    if get_i32(at + R_QUEUE_ID) < 0 or get_i64(at + R_QUEUE_OFFSET) < 0:
        return BAD_SIZE
    if frame.topic_size == 0:
        return BAD_TOPIC
    for number in range(frame.topic_size):
        if not TOPIC_BYTES[at[frame.topic_at + number]]:
            return BAD_TOPIC
    return IS_RECORD


cdef int parse(const unsigned char *at, Py_ssize_t available, int64_t commit_log_offset, Frame *frame) noexcept nogil:
    """Find out what stands at ``at``; fill ``frame`` when it is a whole and valid record."""
    cdef uint32_t body_crc
    cdef int has_crc
    cdef int found = frame_of(at, available, commit_log_offset, frame)
    if found != IS_RECORD:
        return found
    has_crc = check_crc_property(at, frame.size) if frame.properties_size >= CRC_PROPERTY_SIZE else 0
    if has_crc:
        return IS_RECORD if has_crc > 0 else BAD_CRC
    if (memchr(at + frame.properties_at, 0, frame.properties_size) != NULL
            or not is_utf8(at + frame.properties_at, frame.properties_size)):
        return BAD_SIZE  # torn behind the body, which is all that a record without our CRC protects
    body_crc = rmq_crc32(0, at + frame.body_at, frame.body_size) & 0x7FFFFFFF if frame.body_size else 0
    return IS_RECORD if body_crc == <uint32_t>get_i32(at + R_BODY_CRC) else BAD_BODY_CRC


cdef int reconsume_times_at(const unsigned char *record) noexcept nogil:
    """Where the field stands: 12 bytes further on for each address that is IPv6."""
    cdef int32_t flags = get_i32(record + R_SYS_FLAG)
    cdef int at = R_RECONSUME_TIMES
    if flags & SYS_FLAG_BORN_HOST_V6:
        at += 12
    if flags & SYS_FLAG_STORE_HOST_V6:
        at += 12
    return at


cdef int attempt_of(const unsigned char *record) noexcept nogil:
    """Number of the delivery attempt."""
    cdef int32_t before = get_i32(record + reconsume_times_at(record))
    return before + 1 if before < 0x7FFFFFFF else before


cdef const unsigned char *find_property(const unsigned char *at, Py_ssize_t size, const char *name,
                                        Py_ssize_t name_size, Py_ssize_t *value_size) noexcept nogil:
    """Return where the value of ``name`` begins, NULL when the record has no such property."""
    cdef const unsigned char *end = at + size
    cdef const unsigned char *stop
    while at < end:
        stop = <const unsigned char *>memchr(at, 2, end - at)
        if stop == NULL:
            stop = end
        if stop - at > name_size and at[name_size] == 1 and memcmp(at, name, name_size) == 0:
            value_size[0] = stop - at - name_size - 1
            return at + name_size + 1
        at = stop + 1
    return NULL


cdef int store_timestamp_at(const unsigned char *record) noexcept nogil:
    return R_STORE_TIMESTAMP + (12 if get_i32(record + R_SYS_FLAG) & SYS_FLAG_BORN_HOST_V6 else 0)


cdef int64_t store_timestamp_of(const unsigned char *record) noexcept nogil:
    return get_i64(record + store_timestamp_at(record))


SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
DELAYS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h".split()  # of levels 1 to 18 [messageDelayLevel]

cdef enum:
    LEVELS = 18

cdef int64_t[LEVELS] DELAY_MS
for _level, _delay in enumerate(DELAYS):
    DELAY_MS[_level] = int(_delay.rstrip("smh")) * {"s": 1000, "m": 60_000, "h": 3_600_000}[_delay.lstrip("0123456789")]


def delay_ms(int level):
    if not 1 <= level <= LEVELS:
        raise ValueError(wrong_level(level, 1))
    return DELAY_MS[level - 1]


cdef int check_level(int level) except -1:
    if not 0 <= level <= LEVELS:
        raise ValueError(wrong_level(level, 0))
    return 0


cdef str wrong_level(int level, int least):
    table = ", ".join([f"{number} {delay}" for number, delay in enumerate(DELAYS, 1)])
    return f"delay_level={level}: a level is {least} to {LEVELS}{', 0 for no delay' if least == 0 else ''}: {table}"


cdef int64_t delay_ms_of(const unsigned char *level, Py_ssize_t size) noexcept nogil:
    """Delay of a level that is written in digits; 0 for none, that of the highest for one beyond it."""
    cdef int64_t number = 0
    cdef Py_ssize_t position
    for position in range(size):
        if not 48 <= level[position] <= 57 or number > 18:
            break
        number = number * 10 + level[position] - 48
    return 0 if number == 0 else DELAY_MS[(number if number < 18 else 18) - 1]


cdef int64_t tags_code_of(const unsigned char *record, const Frame *frame) noexcept nogil:
    """What the consume queue entry of a record holds: the hash of its tag, or the time at which to deliver it.

    CommitLog.checkMessageAndReturnSize.
    """
    cdef const unsigned char *properties = record + frame.properties_at
    cdef const unsigned char *value
    cdef int64_t delay_ms
    cdef Py_ssize_t size = 0
    if frame.topic_size == 19 and memcmp(record + frame.topic_at, b"SCHEDULE_TOPIC_XXXX", 19) == 0:
        value = find_property(properties, frame.properties_size, b"DELAY", 5, &size)
        delay_ms = 0 if value == NULL else delay_ms_of(value, size)
        if delay_ms:
            return store_timestamp_of(record) + delay_ms
    value = find_property(properties, frame.properties_size, b"TAGS", 4, &size)
    return 0 if value == NULL else hash_utf8(value, size)


@cython.final
@cython.no_gc  # refers to bytes, a queue and strings
@cython.freelist(1024)
cdef class ReceivedMessage:
    """A record of the commit log; every field is decoded when it is read."""

    cdef bytes buffer
    cdef const unsigned char *at
    cdef Frame frame
    cdef readonly object queue
    cdef readonly int delivery_attempt
    cdef bint delivered                 # to a group: what its retry topic holds is shown as of the topic where it failed
    cdef dict parsed

    @property
    def topic(self):
        if self.delivered and self.frame.topic_size > 7 and memcmp(self.at + self.frame.topic_at, b"%RETRY%", 7) == 0:
            origin = self._property(b"RETRY_TOPIC", 11)
            if origin:
                return origin
        return PyUnicode_DecodeUTF8(<char *>self.at + self.frame.topic_at, self.frame.topic_size, NULL)

    @property
    def queue_id(self):
        return get_i32(self.at + R_QUEUE_ID)

    @property
    def queue_offset(self):
        return get_i64(self.at + R_QUEUE_OFFSET)

    @property
    def commit_log_offset(self):
        return get_i64(self.at + R_COMMIT_LOG_OFFSET)

    @property
    def size(self):
        return self.frame.size

    @property
    def body(self):
        return PyBytes_FromStringAndSize(<char *>self.at + self.frame.body_at, self.frame.body_size)

    @property
    def flag(self):
        return get_i32(self.at + R_FLAG)

    @property
    def sys_flag(self):
        return get_i32(self.at + R_SYS_FLAG)

    @property
    def born_timestamp(self):
        return get_i64(self.at + R_BORN_TIMESTAMP)

    @property
    def store_timestamp(self):
        return store_timestamp_of(self.at)

    @property
    def reconsume_times(self):
        return attempt_of(self.at) - 1

    @property
    def tags(self):
        return self._property(b"TAGS", 4)

    @property
    def keys(self):
        text = self._property(b"KEYS", 4)
        return () if text is None else tuple([key for key in text.split(" ") if key])

    @property
    def sharding_key(self):
        return self._property(b"__SHARDINGKEY", 13)

    @property
    def message_id(self):
        unique = self._property(b"UNIQ_KEY", 8)
        return self.offset_message_id if unique is None else unique

    @property
    def offset_message_id(self):
        flags = get_i32(self.at + R_SYS_FLAG)
        host_at = 76 if flags & SYS_FLAG_BORN_HOST_V6 else R_STORE_HOST
        host = self.at[host_at:host_at + (20 if flags & SYS_FLAG_STORE_HOST_V6 else 8)]
        return (host + self.at[R_COMMIT_LOG_OFFSET:R_COMMIT_LOG_OFFSET + 8]).hex().upper()

    @property
    def properties(self):
        cdef Py_ssize_t start = self.frame.properties_at
        if self.parsed is None:
            self.parsed = {}
            text = PyUnicode_DecodeUTF8(<char *>self.at + start, self.frame.properties_size, "replace")
            for pair in text.split("\x02"):
                name, _, value = pair.partition("\x01")
                if name and value and name != "__CRC32#":
                    self.parsed[name] = value
        return self.parsed

    def some_properties(self, tuple names not None):
        """Those of ``properties`` that are named, as bytes, without decoding the others."""
        cdef dict found = {}
        cdef const unsigned char *at
        cdef const unsigned char *value
        cdef const unsigned char *end = self.at + self.frame.properties_at + self.frame.properties_size
        cdef Py_ssize_t size = 0
        for name in names:
            at = self.at + self.frame.properties_at
            while True:  # of several with one name the last one counts
                value = find_property(at, end - at, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), &size)
                if value == NULL:
                    break
                if size:
                    found[name.decode()] = PyUnicode_DecodeUTF8(<char *>value, size, "replace")
                at = value + size
        return found

    @property
    def tags_code(self):
        return tags_code_of(self.at, &self.frame)

    cdef str _property(self, const char *name, Py_ssize_t name_size):
        cdef Py_ssize_t size = 0
        cdef const unsigned char *value = find_property(
            self.at + self.frame.properties_at, self.frame.properties_size, name, name_size, &size)
        return None if value == NULL else PyUnicode_DecodeUTF8(<char *>value, size, "replace")

    def again(self, int attempt=0):
        return _again(self.record(), self.queue, attempt or self.delivery_attempt + 1, self.delivered)

    def record(self):
        return PyBytes_FromStringAndSize(<char *>self.at, self.frame.size)

    def __repr__(self):
        return (f"ReceivedMessage(topic={self.topic!r}, queue_id={self.queue_id}, queue_offset={self.queue_offset}, "
                f"tags={self.tags!r}, keys={self.keys!r}, body=<{self.frame.body_size} B>)")

    def __reduce__(self):
        return _again, (self.record(), self.queue, self.delivery_attempt, self.delivered)


cdef ReceivedMessage received(bytes buffer, Py_ssize_t position, Frame *frame, object queue, int attempt, bint delivered):
    cdef ReceivedMessage message = ReceivedMessage.__new__(ReceivedMessage)
    message.buffer = buffer
    message.at = <const unsigned char *>PyBytes_AS_STRING(buffer) + position
    message.frame = frame[0]
    message.queue = queue
    message.delivery_attempt = attempt
    message.delivered = delivered
    return message


def _again(bytes record not None, object queue, int attempt, bint delivered=False):
    cdef Frame frame
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(record)
    cdef int found = IS_SHORT
    if PyBytes_GET_SIZE(record) >= RECORD_FIXED_SIZE:
        found = parse(at, PyBytes_GET_SIZE(record), get_i64(at + R_COMMIT_LOG_OFFSET), &frame)
    if found != IS_RECORD:
        raise ValueError(f"not a record: outcome {found}")
    return received(record, 0, &frame, queue, attempt, delivered)


def decode(buffer, Py_ssize_t position, int64_t commit_log_offset, object queue=None):
    cdef Py_buffer view
    cdef Frame frame
    cdef int found
    cdef const unsigned char *at
    cdef bytes record = None
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= position <= view.len:
            raise ValueError(f"position {position} is not inside {view.len} bytes")
        at = <const unsigned char *>view.buf + position
        found = parse(at, view.len - position, commit_log_offset, &frame)
        if found != IS_RECORD:
            return found
        record = PyBytes_FromStringAndSize(<char *>at, frame.size)
    finally:
        PyBuffer_Release(&view)
    # The bytes can change under a hostile writer; what was checked must be what is kept.
    at = <const unsigned char *>PyBytes_AS_STRING(record)
    found = parse(at, frame.size, commit_log_offset, &frame)
    return received(record, 0, &frame, queue, attempt_of(at), False) if found == IS_RECORD else found


include "_dispatch.pxi"
include "_running.pxi"


# --- append ----------------------------------------------------------------------------------------------------

cdef enum:  # what a section asks for before it can go on
    DONE = 0
    NEED_LOG_FILE = 1
    NEED_QUEUE_FILE = 2
    NEED_REPAIR = 3
    POISONED = 4
    DISK_FULL = 5
    OUTDATED = 6

cdef struct Section:
    unsigned char *shared           # the runtime file
    unsigned char *slot             # the queue's slot in it
    unsigned char *log[2]           # the file that holds published_to, and the next one
    uint64_t log_base[2]
    uint64_t log_file_bytes
    unsigned char *entries[2]       # consume queue files
    uint64_t first_entry[2]
    uint64_t entries_per_file
    unsigned char *staged           # whole records but for offsets, store timestamp and CRC
    uint64_t staged_size
    int32_t *sizes
    int64_t *tags_codes
    int count
    int64_t delay_ms                # of the level in which the records wait, 0 for none
    uint64_t progress_at            # byte of a word that this append moves from progress_from one on, 0 for none
    uint64_t progress_from
    int64_t now
    uint64_t commit_log_offset      # results, of the first record
    uint64_t queue_offset
    uint64_t lanes
    int rolled


cdef unsigned char *entry_at(Section *section, uint64_t number) noexcept nogil:
    cdef int file
    for file in range(2):
        if section.entries[file] != NULL and 0 <= <int64_t>(number - section.first_entry[file]) < <int64_t>section.entries_per_file:
            return section.entries[file] + (number - section.first_entry[file]) * ENTRY_SIZE
    return NULL


cdef int place(Section *section, unsigned char **target, unsigned char **blank, uint64_t *left) noexcept nogil:
    """Find where the records go: behind the last one, or at the head of the next file with a blank record before."""
    cdef uint64_t end = load64(section.shared + H_PUBLISHED_TO)
    cdef int file
    for file in range(2):
        if section.log[file] != NULL and section.log_base[file] <= end < section.log_base[file] + section.log_file_bytes:
            left[0] = section.log_base[file] + section.log_file_bytes - end
            blank[0] = NULL
            if section.staged_size + BLANK_SIZE <= left[0]:
                target[0] = section.log[file] + (end - section.log_base[file])
                section.commit_log_offset = end
                return DONE
            if file == 1 or section.log[1] == NULL or section.log_base[1] != section.log_base[0] + section.log_file_bytes:
                return NEED_LOG_FILE
            blank[0] = section.log[0] + (end - section.log_base[0])
            target[0] = section.log[1]
            section.commit_log_offset = section.log_base[1]
            return DONE
    return NEED_LOG_FILE


cdef void complete_records(Section *section, int64_t timestamp) noexcept nogil:
    """Put in what is known only under the mutex, then the CRC over the whole record."""
    cdef unsigned char *at = section.staged
    cdef uint64_t commit_log_offset = section.commit_log_offset
    cdef int number
    cdef int32_t size
    for number in range(section.count):
        size = section.sizes[number]
        put_i64(at + R_QUEUE_OFFSET, section.queue_offset + number)
        put_i64(at + R_COMMIT_LOG_OFFSET, commit_log_offset)
        put_i64(at + store_timestamp_at(at), timestamp)
        if section.delay_ms:
            section.tags_codes[number] = timestamp + section.delay_ms
        put_crc_property(at + size - CRC_PROPERTY_SIZE, rmq_crc32(0, at, size - CRC_PROPERTY_SIZE) & 0x7FFFFFFF)
        at += size
        commit_log_offset += size


cdef void copy_records(Section *section, unsigned char *target) noexcept nogil:
    cdef uint64_t half
    if armed_point == AT_RECORD_HALF_COPIED:
        half = section.sizes[0] // 2
        memcpy(target, section.staged, half)
        reach_point(AT_RECORD_HALF_COPIED)
    memcpy(target, section.staged, section.staged_size)


cdef void write_entries(Section *section) noexcept nogil:
    cdef uint64_t commit_log_offset = section.commit_log_offset
    cdef unsigned char *entry
    cdef int number
    for number in range(section.count):
        entry = entry_at(section, section.queue_offset + number)
        put_i64(entry, commit_log_offset)
        keep_program_order()
        if number == 0:
            reach_point(AT_ENTRY_HALF_WRITTEN)
        put_i64(entry + E_TAGS_CODE, section.tags_codes[number])
        keep_program_order()  # the size makes it an entry
        put_i32(entry + E_SIZE, section.sizes[number])
        commit_log_offset += section.sizes[number]


cdef int append_section(Section *section) noexcept nogil:
    """The append, under the append mutex. Either everything is published or nothing was changed.

    The stage tells the next owner what a death left behind: while copying, bytes above ``published_to`` are to be
    zeroed; once recorded, every record is whole and the rest is done again (store/appending.py).
    """
    cdef unsigned char *shared = section.shared
    cdef unsigned char *target = NULL
    cdef unsigned char *blank = NULL
    cdef uint64_t left = 0
    cdef uint64_t end
    cdef int64_t timestamp
    cdef int outcome
    expect_write(section.slot + Q_MAX_OFFSET, 1)
    if load64(shared + H_APPEND_STAGE) != IDLE:
        return NEED_REPAIR
    if section.progress_at and load64(shared + section.progress_at) != section.progress_from:
        return OUTDATED
    if load64(shared + H_POISONED):
        return POISONED
    if load64(shared + H_DISK_FULL):
        return DISK_FULL
    outcome = place(section, &target, &blank, &left)
    if outcome != DONE:
        return outcome
    expect_write(target, section.staged_size + BLANK_SIZE)
    section.queue_offset = load64(section.slot + Q_MAX_OFFSET)
    if entry_at(section, section.queue_offset) == NULL or entry_at(section, section.queue_offset + section.count - 1) == NULL:
        return NEED_QUEUE_FILE
    expect_write(entry_at(section, section.queue_offset), ENTRY_SIZE)
    reach_point(AT_APPEND_LOCKED)

    timestamp = load64(shared + H_LAST_STORE_TIMESTAMP)
    if not section.now < timestamp < section.now + 1000:
        timestamp = section.now  # a clock set back by more than a second is believed
    complete_records(section, timestamp)
    end = section.commit_log_offset + section.staged_size

    store64(shared + H_APPEND_FROM, section.commit_log_offset)
    store64(shared + H_WRITTEN_TO, end)
    store64(shared + H_PROGRESS_AT, section.progress_at)
    store64(shared + H_PROGRESS_TO, section.progress_from + 1)
    store64(shared + H_APPEND_STAGE, COPYING)
    keep_program_order()
    reach_point(AT_APPEND_ANNOUNCED)
    if blank != NULL:
        put_i32(blank, <int32_t>left)
        put_i32(blank + R_MAGIC, BLANK_MAGIC)
        reach_point(AT_BLANK_WRITTEN)
    copy_records(section, target)
    reach_point(AT_RECORDS_COPIED)

    store64(shared + H_APPEND_STAGE, RECORDED)
    keep_program_order()
    reach_point(AT_RECORDS_ANNOUNCED)
    write_entries(section)
    reach_point(AT_ENTRIES_WRITTEN)

    store64(shared + H_PUBLISHED_TO, end)
    reach_point(AT_RECORDS_PUBLISHED)
    store64_seq(section.slot + Q_MAX_OFFSET, section.queue_offset + section.count)
    reach_point(AT_QUEUE_PUBLISHED)
    if section.progress_at:
        store64(shared + section.progress_at, section.progress_from + 1)
        reach_point(AT_PROGRESS_ADVANCED)
    if timestamp != <int64_t>load64(shared + H_LAST_STORE_TIMESTAMP):
        store64(shared + H_LAST_STORE_TIMESTAMP, timestamp)
    store64(shared + H_APPEND_STAGE, IDLE)

    section.rolled = blank != NULL
    section.lanes = exchange64(section.slot + Q_WAITING_LANES, 0) if load64_seq(section.slot + Q_WAITING_LANES) else 0
    return DONE


cdef void wake_lanes(unsigned char *shared, uint64_t lanes) noexcept nogil:
    cdef int lane
    cdef unsigned char *word
    for lane in range(64):
        if lanes >> lane & 1:
            word = shared + ARRIVAL_LANES_AT + lane * ARRIVAL_LANE_STRIDE
            add32(word, 1)
            futex_wake(word, 2147483647)


cdef int locked_append(Section *section, int64_t timeout_ns, int64_t busy_ns, int *outcome) noexcept nogil:
    """Wait for the append mutex and run the section. Returns an errno, or 0 and sets ``outcome``.

    EBUSY: one holder kept the mutex for ``busy_ns`` and nothing was published meanwhile. A holder who takes the mutex
    again and again, and gets on, only makes others wait.
    """
    cdef unsigned char *mutex = section.shared + H_APPEND_MUTEX
    cdef int failure = ETIMEDOUT
    cdef int owner
    cdef uint64_t published_to
    while failure == ETIMEDOUT and timeout_ns > 0:
        owner = mutex_owner(mutex)
        published_to = load64(section.shared + H_PUBLISHED_TO)
        failure = mutex_wait(mutex, min(timeout_ns, busy_ns))
        if (failure == ETIMEDOUT and timeout_ns >= busy_ns and owner == mutex_owner(mutex)
                and published_to == load64(section.shared + H_PUBLISHED_TO)):
            return EBUSY
        timeout_ns -= busy_ns
    if failure:
        return failure
    section.now = wall_clock_ms()
    outcome[0] = append_section(section)
    mutex_release(section.shared + H_APPEND_MUTEX)
    return 0


cdef char HEX[16]
memcpy(HEX, b"0123456789ABCDEF", 16)


cdef void put_hex(unsigned char *at, uint64_t value, int digits) noexcept nogil:
    cdef int digit
    for digit in range(digits - 1, -1, -1):
        at[digit] = HEX[value & 15]
        value >>= 4


@cython.final
cdef class Route:
    """The queues of one topic, as an appender needs them."""

    cdef readonly str topic
    cdef bytes name
    cdef list queues
    cdef int *slots
    cdef int *queue_ids
    cdef int count
    cdef unsigned int turn

    def __init__(self, str topic not None, list queues not None, list slots not None):
        cdef int number
        self.topic = topic
        self.name = topic.encode()
        self.queues = list(queues)
        self.turn = int.from_bytes(os.urandom(2), "little")
        if not slots or len(queues) != len(slots):
            raise ValueError(f"topic {topic}: {len(queues)} queues for {len(slots)} slots")
        self.slots = <int *>realloc(self.slots, len(slots) * sizeof(int))
        self.queue_ids = <int *>realloc(self.queue_ids, len(slots) * sizeof(int))
        if self.slots == NULL or self.queue_ids == NULL:
            raise MemoryError()
        self.count = <int>len(slots)
        for number in range(self.count):
            self.slots[number] = slots[number]
            self.queue_ids[number] = queues[number].queue_id

    def __dealloc__(self):
        free(self.slots)
        free(self.queue_ids)

    cdef int number_of(self, int queue_id) except -1:
        """Number of the queue with an id."""
        cdef int number
        for number in range(self.count):
            if self.queue_ids[number] == queue_id:
                return number
        raise MessageRejected(f"topic {self.topic!r} has {self.count} queues, and none with the id {queue_id}")

    cdef int pick(self, str sharding_key) except -1:
        """Number of the queue: by key as SelectMessageQueueByHash, else one after the other."""
        cdef Py_ssize_t size = 0
        cdef const char *text
        cdef int32_t remainder
        if sharding_key is None:
            self.turn += 1
            return self.turn % <unsigned int>self.count
        text = PyUnicode_AsUTF8AndSize(sharding_key, &size)
        remainder = hash_utf8(<const unsigned char *>text, size) % self.count  # C's remainder, as Java's
        return -remainder if remainder < 0 else remainder


@cython.final
cdef class _Plan:
    """Memory of one append, kept for the next one."""

    cdef unsigned char *staged
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef Py_ssize_t properties_at       # of the record that is staged now
    cdef int32_t *sizes
    cdef int64_t *tags_codes
    cdef int count
    cdef int room
    cdef int64_t delay_ms
    cdef uint64_t progress_at
    cdef uint64_t progress_from

    def __dealloc__(self):
        free(self.staged)
        free(self.sizes)
        free(self.tags_codes)

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef void *grown
        if self.size + more > self.capacity:
            grown = realloc(self.staged, max(2 * self.capacity, self.size + more))
            if grown == NULL:
                raise MemoryError()
            self.staged = <unsigned char *>grown
            self.capacity = max(2 * self.capacity, self.size + more)
        return 0

    cdef int reserve_records(self, int count) except -1:
        cdef void *sizes
        cdef void *codes
        if count > self.room:
            sizes = realloc(self.sizes, count * sizeof(int32_t))
            if sizes == NULL:
                raise MemoryError()
            self.sizes = <int32_t *>sizes
            codes = realloc(self.tags_codes, count * sizeof(int64_t))
            if codes == NULL:
                raise MemoryError()
            self.tags_codes = <int64_t *>codes
            self.room = count
        return 0


cdef unsigned char *put_property(unsigned char *at, const char *name, Py_ssize_t name_size, const char *value,
                                 Py_ssize_t value_size) noexcept nogil:
    memcpy(at, name, name_size)
    at[name_size] = 1
    memcpy(at + name_size + 1, value, value_size)
    at[name_size + 1 + value_size] = 2
    return at + name_size + value_size + 2


cdef const char *text_of(str text, str what, bint word, Py_ssize_t *size) except NULL:
    """UTF-8 of a property's name or value, refused when it holds a separator of the format."""
    cdef const unsigned char *at
    cdef Py_ssize_t number
    try:
        at = <const unsigned char *>PyUnicode_AsUTF8AndSize(text, size)
    except UnicodeEncodeError as error:
        raise MessageRejected(f"{what} {text!r} cannot be stored as UTF-8: {error.reason}") from None
    for number in range(size[0]):
        if at[number] <= 32:  # rare, in what people use for keys and tags
            if at[number] == 1 or at[number] == 2:
                raise MessageRejected(
                    f"{what} {text[:80]!r} holds byte 0x01 or 0x02, which separate properties on disk: remove it")
            if word and at[number] == 32:
                raise MessageRejected(f"{what} {text[:80]!r} holds a space, which separates keys on disk: replace it")
    return <const char *>at


cdef uint32_t spread_hash(bytes name) noexcept:
    """HashMap.hash of Java."""
    cdef uint32_t value = hash_utf8(<const unsigned char *>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
    return value ^ value >> 16


cdef list order_of_hash_map(dict pairs):
    """Names in the order in which Java's HashMap would give them: by bucket, then as they came."""
    cdef Py_ssize_t buckets = 16
    while 4 * len(pairs) > 3 * buckets:
        buckets *= 2
    return [name for _, _, name in sorted([
        (spread_hash(name) & (buckets - 1), number, name) for number, name in enumerate(pairs)])]


cdef struct NotedFile:  # where the last append to a queue found its consume queue file
    unsigned char *entries
    uint64_t first_entry
    uint64_t unmapped


@cython.final
cdef class Appender:
    """Appends messages for one process. What it needs from files it asks ``files`` for, outside of the mutex.

    ``files`` is a :class:`store.appending.AppendFiles`; ``make_route`` returns the :class:`Route` of a new topic;
    ``encode_body`` turns a body that is not ``bytes`` into bytes.
    """

    cdef Mapping shared
    cdef object files
    cdef object make_route
    cdef object encode_body
    cdef dict routes
    cdef Route schedule                 # of the delay levels, when there was a delayed message
    cdef tuple log_files                # (Mapping, base, Mapping or None, base)
    cdef list queue_files               # per slot: (Mapping, first entry, Mapping or None, first entry), borrowed, or None
    cdef NotedFile *noted               # by slot, for as long as nothing was unmapped
    cdef int noted_count
    cdef uint64_t log_file_bytes
    cdef uint64_t entries_per_file
    cdef Py_ssize_t max_body_bytes
    cdef int64_t timeout_ns
    cdef int64_t busy_ns
    cdef Py_ssize_t queue_table_at
    cdef Py_ssize_t queue_slot_size
    cdef unsigned char born_host[8]
    cdef unsigned char store_host[8]
    cdef unsigned char unique_prefix[20]
    cdef uint64_t month_start
    cdef uint64_t month_end
    cdef unsigned int counter
    cdef _Plan spare
    cdef uint64_t ahead_mark            # an append past it wakes the preparer, if it waits
    cdef uint32_t ahead_word
    cdef uint32_t ahead_waiting
    cdef uint32_t ahead_stopped

    def __init__(self, Mapping shared not None, object files, object make_route, object encode_body, *,
                 uint64_t log_file_bytes, uint64_t entries_per_file, Py_ssize_t max_body_bytes, int64_t timeout_ms,
                 int64_t busy_timeout_ms, Py_ssize_t queue_table_at, Py_ssize_t queue_slot_size, bytes born_host not None,
                 bytes store_host not None, bytes unique_prefix not None):
        if len(born_host) != 8 or len(store_host) != 8 or len(unique_prefix) != 10:
            raise ValueError("hosts are 4 + 4 bytes, the prefix of unique keys 10")
        self.shared = shared
        self.files = files
        self.make_route = make_route
        self.encode_body = encode_body
        self.routes = {}
        self.queue_files = []
        self.log_file_bytes = log_file_bytes
        self.entries_per_file = entries_per_file
        self.max_body_bytes = max_body_bytes
        self.timeout_ns = timeout_ms * 1000000
        self.busy_ns = busy_timeout_ms * 1000000
        self.queue_table_at = queue_table_at
        self.queue_slot_size = queue_slot_size
        memcpy(self.born_host, PyBytes_AS_STRING(born_host), 8)
        memcpy(self.store_host, PyBytes_AS_STRING(store_host), 8)
        prefix = unique_prefix.hex().upper().encode()
        memcpy(self.unique_prefix, PyBytes_AS_STRING(prefix), 20)
        self.counter = int.from_bytes(os.urandom(2), "little")

    def add_route(self, Route route not None):
        self.routes[route.topic] = route

    def append(self, Message message not None, str sharding_key=None, int delay_level=0):
        check_level(delay_level)
        cdef Route route = self._route(message.topic)
        cdef int number = route.pick(sharding_key)
        cdef _Plan plan = self._take_plan(1)
        cdef int64_t now = wall_clock_ms()
        cdef SendResult result = SendResult.__new__(SendResult)
        cdef Section section
        try:
            self._stage(plan, message, route, number, sharding_key, now, result)
            if delay_level:
                route, number = self._delay(plan, route, route.queue_ids[number], delay_level)
            self._commit(plan, route.slots[number], now, &section)
            result.queue = route.queues[number]
            result.queue_offset = section.queue_offset
            result.commit_log_offset = section.commit_log_offset
            result.commit_log_end = section.commit_log_offset + section.staged_size
        finally:
            self.spare = plan
        return result

    def record_size(self, Message message not None, str sharding_key=None):
        """Bytes that the record of a message will take. Raises what append would raise for this message alone."""
        cdef Route route = self._route(message.topic)
        cdef _Plan plan = self._take_plan(1)
        try:
            self._stage(plan, message, route, 0, sharding_key, wall_clock_ms(), SendResult.__new__(SendResult))
            return plan.size
        finally:
            self.spare = plan

    def append_batch(self, messages, str sharding_key=None, int delay_level=0):
        cdef list batch = messages if type(messages) is list else list(messages)
        cdef int count = <int>len(batch)
        cdef Section section
        cdef SendResult result
        cdef Message message
        cdef uint64_t commit_log_offset
        cdef int index
        cdef int place = 0
        cdef Route waiting = None
        check_level(delay_level)
        if count == 0:
            return []
        if not isinstance(batch[0], Message):
            raise TypeError(f"a batch holds Message objects, not {type(batch[0]).__name__}")
        if <uint64_t>count > self.entries_per_file:
            raise BatchTooLarge(
                f"{count} messages are over the limit of {self.entries_per_file} a batch, the entries of one consume "
                "queue file: send a smaller batch")
        cdef Route route = self._route((<Message>batch[0]).topic)
        cdef int number = route.pick(sharding_key)
        cdef _Plan plan = self._take_plan(count)
        cdef int64_t now = wall_clock_ms()
        cdef list results = []
        try:
            for item in batch:
                if not isinstance(item, Message):
                    raise TypeError(f"a batch holds Message objects, not {type(item).__name__}")
                message = <Message>item
                if message.topic != route.topic:
                    raise MessageRejected(
                        f"a batch goes to one queue: topic {message.topic!r} in a batch for {route.topic!r}")
                result = SendResult.__new__(SendResult)
                self._stage(plan, message, route, number, sharding_key, now, result)
                if delay_level:
                    waiting, place = self._delay(plan, route, route.queue_ids[number], delay_level)
                results.append(result)
            if delay_level:
                route, number = waiting, place
            if plan.size + BLANK_SIZE > <Py_ssize_t>self.log_file_bytes:
                raise BatchTooLarge(
                    f"{count} records take {plan.size} bytes; one commit log file holds "
                    f"{self.log_file_bytes - BLANK_SIZE}: send a smaller batch")
            self._commit(plan, route.slots[number], now, &section)
            commit_log_offset = section.commit_log_offset
            queue = route.queues[number]
            for index in range(count):
                result = <SendResult>results[index]
                result.queue = queue
                result.queue_offset = section.queue_offset + index
                result.commit_log_offset = commit_log_offset
                commit_log_offset += plan.sizes[index]
                result.commit_log_end = commit_log_offset
        finally:
            self.spare = plan
        return results

    def append_copy(self, ReceivedMessage message not None, str topic not None, int queue_id, object properties not None,
                    *, int reconsume_times, int delay_level=0):
        cdef Section section
        cdef int64_t now = wall_clock_ms()
        cdef Route route = self._route_to(topic, queue_id)
        cdef int number = route.number_of(queue_id)
        cdef _Plan plan
        cdef SendResult result = SendResult.__new__(SendResult)
        if delay_level < 0:
            raise ValueError(wrong_level(delay_level, 0))
        plan = self._take_plan(1)
        try:
            self._stage_copy(plan, message, route, queue_id, reconsume_times)
            self._copy_properties(plan, properties, topic)
            if delay_level:
                route, number = self._delay(plan, route, queue_id, min(delay_level, LEVELS))
            self._check_file_size(plan)
            name_result(result, properties.get("UNIQ_KEY") or message.message_id)
            self._commit(plan, route.slots[number], now, &section)
            result.queue = route.queues[number]
            result.queue_offset = section.queue_offset
            result.commit_log_offset = section.commit_log_offset
            result.commit_log_end = section.commit_log_offset + section.staged_size
        finally:
            self.spare = plan
        return result

    def deliver(self, ReceivedMessage message not None, str topic not None, int queue_id, Py_ssize_t progress_at):
        cdef Section section
        cdef int64_t now = wall_clock_ms()
        cdef Route route = self._route_to(topic, queue_id)
        cdef int number = route.number_of(queue_id)
        cdef SendResult result = SendResult.__new__(SendResult)
        cdef _Plan plan
        if not 0 < progress_at <= self.shared.size - 8 or progress_at % 8:
            raise ValueError(f"byte {progress_at} is no word of the runtime file")
        plan = self._take_plan(1)
        try:
            self._stage_copy(plan, message, route, queue_id, message.delivery_attempt - 1)
            self._keep_properties(plan, message)
            self._check_file_size(plan)
            name_result(result, message.message_id)
            plan.progress_at = progress_at
            plan.progress_from = message.queue_offset
            if not self._commit(plan, route.slots[number], now, &section):
                return None
            result.queue = route.queues[number]
            result.queue_offset = section.queue_offset
            result.commit_log_offset = section.commit_log_offset
            result.commit_log_end = section.commit_log_offset + section.staged_size
        finally:
            self.spare = plan
        return result

    cdef int _stage_copy(self, _Plan plan, ReceivedMessage message, Route route, int queue_id,
                         int reconsume_times) except -1:
        """Write a record as ``_stage`` does, up to its properties, with everything from ``message`` but its place."""
        cdef Py_ssize_t kept = message.frame.body_at + message.frame.body_size
        cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(route.name)
        cdef unsigned char *start
        cdef unsigned char *at
        plan.reserve(kept + 3 + topic_size + 2 * MAX_PROPERTIES_BYTES)
        start = plan.staged + plan.size
        memcpy(start, message.at, kept)
        put_i32(start + R_QUEUE_ID, queue_id)
        at = start + reconsume_times_at(start)
        put_i32(at, reconsume_times)
        put_i64(at + R_PREPARED_OFFSET - R_RECONSUME_TIMES, 0)
        at = start + kept
        at[0] = <unsigned char>topic_size
        memcpy(at + 1, PyBytes_AS_STRING(route.name), topic_size)
        plan.properties_at = kept + 3 + topic_size
        return 0

    cdef int _copy_properties(self, _Plan plan, object properties, str topic) except -1:
        """Write the properties given, and finish the record."""
        cdef Py_ssize_t used = CRC_PROPERTY_SIZE
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t name_size = 0
        cdef const char *name
        cdef const char *text
        cdef unsigned char *at = plan.staged + plan.size + plan.properties_at
        for key, value in properties.items():
            name = text_of(<str?>key, "property name", False, &name_size)
            text = text_of(<str?>value, "property value", False, &size)
            if name_size == 0 or size == 0:
                raise MessageRejected(f"property {key!r}: {value!r}: RocketMQ drops empty names and values")
            used += name_size + size + 2
            if used > MAX_PROPERTIES_BYTES:
                raise PropertiesTooLarge(
                    f"properties of a copy for topic {topic!r} take more than {MAX_PROPERTIES_BYTES} bytes on disk")
            at = put_property(at, name, name_size, text, size)
        self._finish_staged(plan, at, used)
        return 0

    cdef int _keep_properties(self, _Plan plan, ReceivedMessage message) except -1:
        """Write the properties of ``message`` byte for byte, and finish the record."""
        cdef const unsigned char *properties = message.at + message.frame.properties_at
        cdef Py_ssize_t size = message.frame.properties_size
        cdef unsigned char *at = plan.staged + plan.size + plan.properties_at
        if size >= CRC_PROPERTY_SIZE and memcmp(properties + size - CRC_PROPERTY_SIZE, b"__CRC32#\x01", 9) == 0:
            size -= CRC_PROPERTY_SIZE
        if size + 1 + CRC_PROPERTY_SIZE > MAX_PROPERTIES_BYTES:  # a broker's, without room for the CRC
            kept = {name: value for name, value in message.properties.items()
                    if name not in ("DELAY", "REAL_TOPIC", "REAL_QID")}
            return self._copy_properties(plan, kept, message.topic)
        memcpy(at, properties, size)
        if size and at[size - 1] != 2:
            at[size] = 2
            size += 1
        self._finish_staged(plan, at + size, size + CRC_PROPERTY_SIZE)
        return 0

    cdef void _finish_staged(self, _Plan plan, unsigned char *end, Py_ssize_t properties_size) noexcept:
        """Enter the sizes of the record that was staged last; ``end`` is behind its properties but for the CRC."""
        cdef unsigned char *start = plan.staged + plan.size
        cdef Py_ssize_t total = end + CRC_PROPERTY_SIZE - start
        cdef Frame frame
        put_i16(end + CRC_PROPERTY_SIZE - properties_size - 2, <int>properties_size)
        put_i32(start, <int32_t>total)
        frame_of(start, total, get_i64(start + R_COMMIT_LOG_OFFSET), &frame)
        plan.sizes[plan.count] = <int32_t>total
        plan.tags_codes[plan.count] = tags_code_of(start, &frame)
        plan.count += 1
        plan.size += total

    cdef _delay(self, _Plan plan, Route route, int queue_id, int level):
        """Make the record that was staged last wait in a delay level; return route and number of the queue there.

        CommitLog.asyncPutMessage: the properties are written anew, in the order of a HashMap of Java.
        """
        cdef Route schedule = self._schedule()
        cdef int number = schedule.number_of(level - 1)
        cdef unsigned char *start
        cdef unsigned char *at
        cdef Frame frame
        cdef bytes text
        plan.count -= 1
        plan.size -= plan.sizes[plan.count]
        start = plan.staged + plan.size
        frame_of(start, plan.sizes[plan.count], get_i64(start + R_COMMIT_LOG_OFFSET), &frame)
        pairs = {}
        at = start + frame.properties_at
        for pair in at[:frame.properties_size - CRC_PROPERTY_SIZE].split(b"\x02"):
            if pair:
                name, _, value = pair.partition(b"\x01")
                pairs[name] = value
        pairs[b"DELAY"] = b"%d" % level
        pairs[b"REAL_TOPIC"] = route.name
        pairs[b"REAL_QID"] = b"%d" % queue_id
        text = b"".join([name + b"\x01" + pairs[name] + b"\x02" for name in order_of_hash_map(pairs)])
        if len(text) + CRC_PROPERTY_SIZE > MAX_PROPERTIES_BYTES:
            raise PropertiesTooLarge(
                f"a delayed message for topic {route.topic!r} keeps topic, queue and level in its properties, which then "
                f"take more than {MAX_PROPERTIES_BYTES} bytes on disk: shorten tags, keys or properties")
        plan.reserve(frame.topic_at + 64 + MAX_PROPERTIES_BYTES)
        start = plan.staged + plan.size
        put_i32(start + R_QUEUE_ID, level - 1)
        at = start + frame.topic_at
        (at - 1)[0] = <unsigned char>PyBytes_GET_SIZE(schedule.name)
        memcpy(at, PyBytes_AS_STRING(schedule.name), PyBytes_GET_SIZE(schedule.name))
        at += PyBytes_GET_SIZE(schedule.name) + 2
        memcpy(at, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        self._finish_staged(plan, at + PyBytes_GET_SIZE(text), PyBytes_GET_SIZE(text) + CRC_PROPERTY_SIZE)
        plan.delay_ms = DELAY_MS[level - 1]
        return schedule, number

    cdef int _check_file_size(self, _Plan plan) except -1:
        if plan.size + BLANK_SIZE > <Py_ssize_t>self.log_file_bytes:
            raise BodyTooLarge(
                f"a record of {plan.size} bytes; one commit log file holds {self.log_file_bytes - BLANK_SIZE}: the message "
                "is from a store with larger files")
        return 0

    def populate_file(self, Mapping mapping not None, uint64_t base, uint64_t start, uint64_t least, uint64_t most,
                      Mapping behind=None):
        """Populate the pages of one file ahead of the writer, until its end; return how far that is.

        Lets go of those behind the writer, and of those of the file ``behind`` this one when the writer has left it: the
        flush would take each of them from this process by itself, with an interrupt of the other processors.

        Stays ahead by as much as the writer went since the last step, doubled, between ``least`` and ``most`` bytes. The
        GIL is not needed meanwhile: a writer in full run would give it back every 5 ms only. Returns also when the writer
        has left the file, or after :meth:`stop_ahead`.
        """
        cdef uint64_t end = base + mapping.size
        cdef uint64_t populated_to = start
        cdef uint64_t released_to = base
        cdef bint left = behind is not None  # pages of the file behind are still to be let go
        cdef uint64_t seen = load64(self.shared.address + H_PUBLISHED_TO)
        cdef uint64_t published_to, ahead, target
        cdef int failure = 0
        if not base <= start <= end:
            raise ValueError(f"{start} is not inside the file at {base}")
        with nogil:
            while populated_to < end and failure == 0 and not load32(&self.ahead_stopped):
                published_to = load64(self.shared.address + H_PUBLISHED_TO)
                if published_to >= end:
                    populated_to = end
                    break
                if left and published_to > base:
                    madvise(behind.address, behind.size, MADV_DONTNEED)
                    left = False
                if published_to > released_to + 2 * least:
                    release(mapping, base, &released_to, published_to - least)
                ahead = max(least, min(most, 2 * (published_to - seen)))
                seen = published_to
                target = min(end, published_to + ahead)
                failure = self.populate(mapping, base, &populated_to, target)
                if populated_to < end:
                    self.sleep_ahead(published_to + ahead // 2)
        if failure and failure != EINVAL:  # EINVAL: a kernel before 5.14; pages are then made at first touch
            raise OSError(failure, os.strerror(failure))
        return populated_to

    cdef int populate(self, Mapping mapping, uint64_t base, uint64_t *populated_to, uint64_t target) noexcept nogil:
        """In steps, which leave out what the writer has passed meanwhile. Returns an errno."""
        cdef uint64_t step = 256 << 10
        cdef uint64_t start, end, published_to
        while populated_to[0] < target:
            published_to = load64(self.shared.address + H_PUBLISHED_TO)
            start = max(populated_to[0], published_to) - base & ~<uint64_t>4095
            end = min(target - base, (start + step) & ~(step - 1))
            if start < end and madvise(mapping.address + start, end - start, MADV_POPULATE_WRITE):
                return errno
            populated_to[0] = base + max(start, end)
        return 0

    cdef void sleep_ahead(self, uint64_t mark) noexcept nogil:
        """Sleep until an append of this process has passed ``mark``, or for a second."""
        cdef uint32_t seen = load32(&self.ahead_word)
        store64(&self.ahead_mark, mark)
        store32(&self.ahead_waiting, 1)
        if load64_seq(self.shared.address + H_PUBLISHED_TO) <= mark and not load32(&self.ahead_stopped):
            futex_wait(&self.ahead_word, seen, 1000000000)
        store32(&self.ahead_waiting, 0)

    def wait_for_append(self):
        """Sleep until this process appends, or for a second."""
        with nogil:
            self.sleep_ahead(load64(self.shared.address + H_PUBLISHED_TO))

    def stop_ahead(self):
        """End :meth:`populate_file` and :meth:`wait_for_append` in the thread that is in one."""
        store32(&self.ahead_stopped, 1)
        self.wake_ahead()

    cdef void wake_ahead(self) noexcept nogil:
        store32(&self.ahead_waiting, 0)
        add32(&self.ahead_word, 1)
        futex_wake(&self.ahead_word, 2147483647)

    cdef Route _schedule(self):
        if self.schedule is None:
            self.schedule = <Route?>self.make_route(SCHEDULE_TOPIC)
        return self.schedule

    cdef Route _route_to(self, str topic, int queue_id):
        """The route of a topic, made again when it does not know the queue."""
        cdef Route route = self._route(topic)
        cdef int number
        for number in range(route.count):
            if route.queue_ids[number] == queue_id:
                return route
        del self.routes[topic]
        return self._route(topic)

    cdef Route _route(self, str topic):
        cdef PyObject *found = PyDict_GetItem(self.routes, topic)
        if found != NULL:
            return <Route>found
        if topic == SCHEDULE_TOPIC:
            raise MessageRejected(f"topic {topic!r} holds messages that wait for their delay level: give a delay_level")
        route = self.make_route(topic)
        self.routes[topic] = route
        return <Route?>route

    cdef _Plan _take_plan(self, int count):
        cdef _Plan plan = self.spare
        self.spare = None
        if plan is None:
            plan = _Plan.__new__(_Plan)
        plan.size = 0
        plan.count = 0
        plan.delay_ms = 0
        plan.progress_at = plan.progress_from = 0
        plan.reserve_records(count)
        return plan

    cdef int _stage(self, _Plan plan, Message message, Route route, int number, str sharding_key, int64_t now,
                    SendResult result) except -1:
        """Write one record but for what is known only under the mutex."""
        cdef object body = message.body
        cdef unsigned char *start
        cdef unsigned char *at
        cdef Py_ssize_t body_size, topic_size, total
        cdef int64_t tags_code = 0
        if type(body) is not bytes:
            body = self.encode_body(body)
        body_size = PyBytes_GET_SIZE(<bytes?>body)
        if body_size > self.max_body_bytes:
            raise BodyTooLarge(
                f"a body of {body_size} bytes is over the limit of {self.max_body_bytes} (max_body_bytes): split it, "
                "or store the data elsewhere and send a reference")
        topic_size = PyBytes_GET_SIZE(route.name)
        plan.reserve(RECORD_FIXED_SIZE + body_size + topic_size + 2 * MAX_PROPERTIES_BYTES)
        start = plan.staged + plan.size
        memset(start, 0, RECORD_HEADER_SIZE)
        put_i32(start + R_MAGIC, RECORD_MAGIC)
        put_i32(start + R_QUEUE_ID, route.queue_ids[number])
        put_i32(start + R_FLAG, message.flag)
        put_i64(start + R_BORN_TIMESTAMP, now)
        memcpy(start + R_BORN_HOST, self.born_host, 8)
        memcpy(start + R_STORE_HOST, self.store_host, 8)
        put_i32(start + R_BODY_SIZE, <int32_t>body_size)
        at = start + RECORD_HEADER_SIZE
        memcpy(at, PyBytes_AS_STRING(body), body_size)
        if body_size:
            put_i32(start + R_BODY_CRC, <int32_t>(rmq_crc32(0, at, body_size) & 0x7FFFFFFF))
        at += body_size
        at[0] = <unsigned char>topic_size
        memcpy(at + 1, PyBytes_AS_STRING(route.name), topic_size)
        at += 1 + topic_size
        total = self._stage_properties(at + 2, message, sharding_key, now, result, &tags_code)
        put_i16(at, <int>total)
        total += at + 2 - start
        put_i32(start, <int32_t>total)
        plan.sizes[plan.count] = <int32_t>total
        plan.tags_codes[plan.count] = tags_code
        plan.count += 1
        plan.size += total
        return 0

    cdef Py_ssize_t _stage_properties(self, unsigned char *at, Message message, str sharding_key, int64_t now,
                                      SendResult result, int64_t *tags_code) except -1:
        """Write the properties with room for the CRC behind them; return their size."""
        cdef unsigned char *start = at
        cdef Py_ssize_t used = CRC_PROPERTY_SIZE + 42
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t name_size = 0
        cdef const char *text
        cdef const char *name
        cdef bint first = True
        if message.keys:
            used += 5
            for key in message.keys:
                text = text_of(<str?>key, "key", True, &size)
                used += size + 1
                if used > MAX_PROPERTIES_BYTES:
                    raise_properties_too_large(message)
                if first:
                    memcpy(at, b"KEYS\x01", 5)
                    at += 5
                else:
                    at[0] = 32
                    at += 1
                first = False
                memcpy(at, text, size)
                at += size
            at[0] = 2
            at += 1
        if message.tags:
            text = text_of(message.tags, "tags", False, &size)
            used += size + 6
            if used > MAX_PROPERTIES_BYTES:
                raise_properties_too_large(message)
            tags_code[0] = hash_utf8(<const unsigned char *>text, size)
            at = put_property(at, b"TAGS", 4, text, size)
        if message.properties:
            for key, value in message.properties.items():
                if key in RESERVED_PROPERTIES:
                    raise MessageRejected(f"property {key!r} belongs to the queue itself: choose another name")
                name = text_of(<str?>key, "property name", False, &name_size)
                text = text_of(<str?>value, "property value", False, &size)
                if name_size == 0 or size == 0:
                    raise MessageRejected(f"property {key!r}: {value!r}: RocketMQ drops empty names and values")
                used += name_size + size + 2
                if used > MAX_PROPERTIES_BYTES:
                    raise_properties_too_large(message)
                at = put_property(at, name, name_size, text, size)
        if sharding_key:
            text = text_of(sharding_key, "sharding key", False, &size)
            used += size + 15
            if used > MAX_PROPERTIES_BYTES:
                raise_properties_too_large(message)
            at = put_property(at, b"__SHARDINGKEY", 13, text, size)
        self._put_unique_key(<unsigned char *>result.unique_key, now)
        at = put_property(at, b"UNIQ_KEY", 8, result.unique_key, 32)
        return at - start + CRC_PROPERTY_SIZE

    cdef void _put_unique_key(self, unsigned char *at, int64_t now):
        """MessageClientIDSetter: address, process, time within the month, counter; the process part is random here."""
        if not self.month_start <= <uint64_t>now < self.month_end:
            self.month_start, self.month_end = self.files.month(now)
        memcpy(at, self.unique_prefix, 20)
        put_hex(at + 20, <uint64_t>now - self.month_start, 8)
        self.counter += 1
        put_hex(at + 28, self.counter, 4)

    cdef int _commit(self, _Plan plan, int number, int64_t now, Section *section) except -1:
        """Run the append section, getting what it needs between the attempts. 0 when the progress word had moved on.

        The first attempt takes the address that the last one to this queue has noted: with 10,000 queues each object on
        the way to it would have to come from main memory. It holds no reference, and so it keeps the GIL.
        """
        cdef int failure
        cdef bint noted = self._point_noted(number, section)
        cdef int outcome = NEED_LOG_FILE
        cdef tuple log_files
        cdef tuple queue_files
        cdef list held = None  # what was provided, until it is used, were the mapping cache ever so small
        cdef Mapping entries, more_entries
        section.shared = self.shared.address
        section.slot = self.shared.address + self.queue_table_at + number * self.queue_slot_size
        section.log_file_bytes = self.log_file_bytes
        section.entries_per_file = self.entries_per_file
        section.staged = plan.staged
        section.staged_size = plan.size
        section.sizes = plan.sizes
        section.tags_codes = plan.tags_codes
        section.count = plan.count
        section.delay_ms = plan.delay_ms
        section.progress_at = plan.progress_at
        section.progress_from = plan.progress_from
        section.now = now
        while True:
            log_files = self.log_files  # held while the section runs: rule 5
            self._point_log(log_files, section)
            if not noted:
                queue_files = self._queue_files(number)
                entries, more_entries = lent(queue_files, 0), lent(queue_files, 2)
                self._point_queue(queue_files, entries, more_entries, section)
            failure = mutex_try(section.shared + H_APPEND_MUTEX, 200)
            if failure == 0:
                outcome = append_section(section)
                mutex_release(section.shared + H_APPEND_MUTEX)
            elif failure == EBUSY and noted:
                noted = False
                continue
            elif failure == EBUSY:
                with nogil:
                    failure = locked_append(section, self.timeout_ns, self.busy_ns, &outcome)
            if failure:
                self._raise_lock_failure(failure)
            if outcome == DONE:
                break
            if outcome == OUTDATED:
                return 0
            noted = False
            if held is None:
                held = []
            held.append(self._provide(outcome, number, plan))
        if not noted:
            self._note(number, section)
        reach_point(AT_APPEND_FINISHED)
        if section.lanes:
            with nogil:
                wake_lanes(section.shared, section.lanes)
        if section.rolled:
            self.files.rolled()
        if load32(&self.ahead_waiting) and section.commit_log_offset + section.staged_size > load64(&self.ahead_mark):
            self.wake_ahead()
        return 1

    cdef tuple _queue_files(self, int slot):
        while slot >= len(self.queue_files):
            self.queue_files.append(None)
        return self.queue_files[slot]

    cdef bint _point_noted(self, int number, Section *section):
        if number >= self.noted_count or self.noted[number].unmapped != unmapped:
            return False
        section.entries[0] = self.noted[number].entries
        section.first_entry[0] = self.noted[number].first_entry
        section.entries[1] = NULL
        return True

    cdef int _note(self, int number, Section *section) except -1:
        cdef int file = 0 if section.entries[1] == NULL else 1
        cdef void *grown
        if number >= self.noted_count:
            grown = realloc(self.noted, (number + 1024) * sizeof(NotedFile))
            if grown == NULL:
                raise MemoryError()
            self.noted = <NotedFile *>grown
            memset(self.noted + self.noted_count, 0, (number + 1024 - self.noted_count) * sizeof(NotedFile))
            self.noted_count = number + 1024
        self.noted[number].entries = section.entries[file]
        self.noted[number].first_entry = section.first_entry[file]
        self.noted[number].unmapped = unmapped
        return 0

    def __dealloc__(self):
        free(self.noted)

    cdef void _point_log(self, tuple log_files, Section *section):
        section.log[0] = section.log[1] = NULL
        if log_files is not None:
            section.log[0] = (<Mapping>log_files[0]).address
            section.log_base[0] = log_files[1]
            if log_files[2] is not None:
                section.log[1] = (<Mapping>log_files[2]).address
                section.log_base[1] = log_files[3]

    cdef void _point_queue(self, tuple queue_files, Mapping entries, Mapping more_entries, Section *section):
        section.entries[0] = section.entries[1] = NULL
        if entries is not None:
            section.entries[0] = entries.address
            section.first_entry[0] = queue_files[1]
        if more_entries is not None:
            section.entries[1] = more_entries.address
            section.first_entry[1] = queue_files[3]

    cdef tuple _provide(self, int outcome, int slot, _Plan plan):
        if outcome == POISONED:
            raise StorePoisoned(
                f"a flush failed with errno {load64(self.shared.address + H_POISONED)}; nothing was written. "
                "Look at the disk, then restart every process that uses the store")
        if outcome == DISK_FULL:
            self.files.check_room()
        elif outcome == NEED_REPAIR:
            self.files.repair()
            return None
        if outcome == NEED_LOG_FILE:
            self.log_files = self.files.log_files(plan.size)
            return self.log_files
        provided = self.files.queue_files(slot, plan.count)
        self.queue_files[slot] = borrowed(provided)
        return provided

    cdef int _raise_lock_failure(self, int failure) except -1:
        owner = mutex_owner(self.shared.address + H_APPEND_MUTEX)
        if failure == EBUSY:
            raise PageCacheBusy(
                f"one append, by thread {owner}, has kept the append lock for {self.busy_ns // 1000000} ms "
                "(page_cache_busy_timeout_ms); nothing was written. The disk is slower than the senders, or the holder is "
                "stopped: send less, and try again")
        if failure == ETIMEDOUT:
            raise StoreBusy(
                f"waited {self.timeout_ns // 1000000} ms for the append lock, held by thread {owner}; nothing was "
                "written. The holder is stopped or starved: try again, or continue or kill it")
        raise OSError(failure, os.strerror(failure))


cdef void release(Mapping mapping, uint64_t base, uint64_t *released_to, uint64_t target) noexcept nogil:
    """Take pages out of this process's page table. They stay in the page cache, dirty as they are."""
    cdef uint64_t start = released_to[0] - base
    cdef uint64_t end = (target - base) & ~<uint64_t>4095
    if end > start:
        madvise(mapping.address + start, end - start, MADV_DONTNEED)
        released_to[0] = base + end


cdef int32_t get_queue_id(const unsigned char *slot) noexcept nogil:
    return <int32_t>load32(slot)


cdef bint has_topic(const unsigned char *slot, const unsigned char *record, Frame *frame) noexcept nogil:
    return (<Py_ssize_t>load32(slot + Q_TOPIC_SIZE) == frame.topic_size
            and memcmp(slot + Q_TOPIC, record + frame.topic_at, frame.topic_size) == 0)


cdef int raise_properties_too_large(Message message) except -1:
    raise PropertiesTooLarge(
        f"tags, keys and properties of a message for topic {message.topic!r} take more than {MAX_PROPERTIES_BYTES} "
        "bytes on disk: shorten them")


# --- take and acknowledge --------------------------------------------------------------------------------------

cdef void settle_advance(unsigned char *slot) noexcept nogil:
    """Finish moving ``committed_offset``: clear the bits it passes, then move it. Doing it twice is doing it once."""
    cdef uint64_t target = load64(slot + G_ADVANCE_TO)
    cdef uint64_t offset = max(load64(slot + G_COMMITTED), target - min(target, <uint64_t>ACK_WINDOW))
    cdef unsigned char *word
    cdef uint64_t bits
    while offset < target:
        word = word_of(slot, offset)
        bits = bits_in_word(&offset, target)
        store64(word, load64(word) & ~bits)
    reach_point(AT_ACK_CLEARED)
    if load64(slot + G_HELD_OFFSET) <= target:
        store64(slot + G_HELD_OFFSET, 0)
    store64(slot + G_COMMITTED, target)


cdef unsigned char *word_of(const unsigned char *slot, uint64_t offset) noexcept nogil:
    """The word of the bitmap that holds the bit of an offset."""
    return <unsigned char *>slot + G_ACKNOWLEDGED + offset % ACK_WINDOW // 64 * 8


cdef uint64_t bits_in_word(uint64_t *offset, uint64_t end) noexcept nogil:
    """The bits that ``[offset, end)``, which is not empty, has in the word of ``offset``; moves it behind them."""
    cdef uint64_t first = offset[0] % 64
    cdef uint64_t count = min(64 - first, end - offset[0])
    offset[0] += count
    return ~<uint64_t>0 >> (64 - count) << first


cdef bint is_acknowledged(const unsigned char *slot, uint64_t offset) noexcept nogil:
    return load64(word_of(slot, offset)) >> (offset % 64) & 1


cdef void settle_dead_advance(unsigned char *slot) noexcept nogil:
    """Finish a move that its owner died in the middle of."""
    if load64(slot + G_ADVANCE_TO) != load64(slot + G_COMMITTED):
        settle_advance(slot)


cdef void advance(unsigned char *slot, uint64_t committed) noexcept nogil:
    """Move ``committed_offset`` over what is finished without a gap."""
    cdef uint64_t target = committed
    cdef uint64_t unfinished = 0
    while target < committed + ACK_WINDOW and unfinished == 0:
        unfinished = ~load64(word_of(slot, target)) >> (target % 64)
        target += 64 - target % 64 if unfinished == 0 else lowest_bit(unfinished)
    target = min(target, committed + ACK_WINDOW)
    if target != committed:
        store64(slot + G_ADVANCE_TO, target)
        reach_point(AT_ACK_ADVANCING)
        settle_advance(slot)


cdef int acknowledge_section(unsigned char *slot, uint64_t epoch, const uint64_t *offsets, Py_ssize_t count) noexcept nogil:
    """Under the mutex of the group-queue. Returns 0 when the epoch is old, 1 when done, 2 for an offset beyond the window."""
    cdef uint64_t committed
    cdef unsigned char *word
    cdef Py_ssize_t number
    if load64(slot + G_EPOCH) != epoch:
        return 0
    settle_dead_advance(slot)
    reach_point(AT_ACK_LOCKED)
    committed = load64(slot + G_COMMITTED)
    for number in range(count):
        if offsets[number] < committed:
            continue
        if offsets[number] >= committed + ACK_WINDOW:
            return 2
        word = word_of(slot, offsets[number])
        store64(word, load64(word) | <uint64_t>1 << offsets[number] % 64)
    reach_point(AT_ACK_MARKED)
    advance(slot, committed)
    return 1


cdef int skip_section(unsigned char *slot, uint64_t epoch, uint64_t offset, uint64_t end) noexcept nogil:
    """Under the mutex of the group-queue: finish every message in ``[offset, end)``, as acknowledge_section does."""
    cdef uint64_t committed, bits
    cdef unsigned char *word
    if epoch != load64(slot + G_EPOCH):
        return 0
    settle_dead_advance(slot)
    reach_point(AT_ACK_LOCKED)
    committed = load64(slot + G_COMMITTED)
    if end > committed + ACK_WINDOW:
        return 2
    offset = max(offset, committed)
    while offset < end:
        word = word_of(slot, offset)
        bits = bits_in_word(&offset, end)
        store64(word, load64(word) | bits)
    reach_point(AT_ACK_MARKED)
    advance(slot, committed)
    return 1


cdef int expire_section(unsigned char *slot, uint64_t epoch, uint64_t low, uint64_t start, uint64_t *skipped) noexcept nogil:
    """Under the mutex of the group-queue: move ``committed_offset`` up to ``low``, below which messages were removed.

    Counts those from ``start`` on that were not finished. Returns 0 when the epoch is old, 1 when done.
    """
    cdef uint64_t committed, offset
    if epoch != load64(slot + G_EPOCH):
        return 0
    settle_dead_advance(slot)
    committed = load64(slot + G_COMMITTED)
    if committed >= low:
        return 1
    start = max(start, committed)
    if start < low:
        skipped[0] += low - start
    for offset in range(start, min(low, committed + ACK_WINDOW)):
        skipped[0] -= is_acknowledged(slot, offset)
    store64(slot + G_ADVANCE_TO, low)
    settle_advance(slot)
    return 1


cdef int begin_section(unsigned char *slot, uint64_t epoch, uint64_t offset, int first) noexcept nogil:
    """Under the mutex of the group-queue: count a delivery attempt of the message that an ordered queue stands at.

    Returns its number, ``first`` for a message that was not begun before; 0 when the epoch is old.
    """
    if epoch != load64(slot + G_EPOCH):
        return 0
    if load64(slot + G_HELD_OFFSET) == offset + 1:
        first = <int>min(load64(slot + G_HELD_ATTEMPTS), <uint64_t>MOST_ATTEMPTS) + 1
        store64(slot + G_HELD_ATTEMPTS, first)
        return first
    store64(slot + G_HELD_OFFSET, 0)  # a death in between must not give this message the attempts of another one
    store64(slot + G_HELD_ATTEMPTS, first)
    store64(slot + G_HELD_OFFSET, offset + 1)
    return first


_GONE = object()
"""In the place of a message that retention has removed."""


@cython.final
cdef class TagSet:
    """Tags to deliver: their hashes for the entry, their bytes for the record. Empty takes every message.

    ``passes`` is asked for each message whose tag matches, unless it is None.
    """

    cdef frozenset tags
    cdef object passes
    cdef int32_t *codes
    cdef int count

    def __cinit__(self, tags, passes=None):
        cdef int number
        self.passes = passes
        self.tags = frozenset([tag.encode() for tag in tags])
        self.count = <int>len(self.tags)
        self.codes = <int32_t *>malloc(max(1, self.count) * sizeof(int32_t))
        if self.codes == NULL:
            raise MemoryError()
        for number, tag in enumerate(self.tags):
            self.codes[number] = hash_utf8(<const unsigned char *>PyBytes_AS_STRING(tag), PyBytes_GET_SIZE(tag))

    def __dealloc__(self):
        free(self.codes)

    cdef bint may_match(self, int64_t code) noexcept nogil:
        cdef int number
        if self.count == 0:
            return True
        for number in range(self.count):
            if self.codes[number] == <int32_t>code:
                return True
        return False

    cdef bint matches(self, const unsigned char *record, Frame *frame):
        cdef Py_ssize_t size = 0
        cdef const unsigned char *value
        if self.count == 0:
            return True
        value = find_property(record + frame.properties_at, frame.properties_size, b"TAGS", 4, &size)
        return value != NULL and PyBytes_FromStringAndSize(<char *>value, size) in self.tags


cdef struct Entry:
    int64_t commit_log_offset
    int32_t size
    int64_t tags_code


cdef enum:
    MOST_LOOKED_AT = 1 << 20    # entries, by one take: then its caller gets a word in
    MOST_ASKED_ABOUT = 1 << 13  # the same, where Python is asked about messages
    ENTRIES_AT_ONCE = 16
    BRIEFLY = 1                 # slices that are skipped with the GIL held, which takes some microseconds
    AT_LENGTH = 1 << 20         # and without it


cdef struct Skip:  # a run of entries of one file that tags are compared with
    unsigned char *shared
    unsigned char *slot
    uint64_t epoch
    const unsigned char *entry          # of the first offset
    const int32_t *codes
    int code_count
    uint64_t log_begin
    uint64_t offset                     # everything below is finished
    uint64_t end
    uint64_t span


cdef bint is_any_wanted(const Skip *skip, const unsigned char *entry, int count) noexcept nogil:
    """Whether one of some entries has a wanted tag, or its record is removed. Looks at all: branches would cost more."""
    cdef bint found = False
    cdef int number, code
    for code in range(skip.code_count):
        for number in range(count):
            found |= get_i32(entry + number * ENTRY_SIZE + E_TAGS_CODE + 4) == skip.codes[code]
    if skip.log_begin:
        for number in range(count):
            found |= <uint64_t>get_i64(entry + number * ENTRY_SIZE) < skip.log_begin
    return found


cdef uint64_t first_wanted(const Skip *skip, uint64_t end) noexcept nogil:
    """The first offset that may be wanted, or whose record is removed; ``end`` when there is none below it."""
    cdef const unsigned char *entry = skip.entry
    cdef uint64_t left = end - skip.offset
    while left >= ENTRIES_AT_ONCE and not is_any_wanted(skip, entry, ENTRIES_AT_ONCE):
        entry += ENTRIES_AT_ONCE * ENTRY_SIZE
        left -= ENTRIES_AT_ONCE
    while left > 0 and not is_any_wanted(skip, entry, 1):
        entry += ENTRY_SIZE
        left -= 1
    return end - left


cdef int skip_unwanted(Skip *skip, int slices, int64_t timeout_ns) noexcept nogil:
    """Finish what is not wanted, from ``skip.offset`` on, and move that behind it: a slice under each lock.

    Returns 0; EBUSY when a lock is not free and there is no time to wait for it, or the errno of the lock; ESTALE when
    the epoch is old.
    """
    cdef uint64_t end, wanted
    cdef int failure, outcome
    while slices > 0 and skip.offset < skip.end:
        slices -= 1
        end = min(skip.end, load64(skip.slot + G_COMMITTED) + skip.span)
        if end <= skip.offset:
            return 0
        wanted = first_wanted(skip, end)
        if wanted == skip.offset or load64(skip.shared + H_MIN_OFFSET) != skip.log_begin:
            return 0  # a file that is removed while it is read looks like zeros
        failure = mutex_wait(skip.slot + G_MUTEX, timeout_ns) if timeout_ns else mutex_try(skip.slot + G_MUTEX, 30)
        if failure:
            return failure
        outcome = skip_section(skip.slot, skip.epoch, skip.offset, wanted)
        mutex_release(skip.slot + G_MUTEX)
        if outcome != 1:
            return ESTALE
        reach_point(AT_ACK_FINISHED)
        skip.entry += (wanted - skip.offset) * ENTRY_SIZE
        skip.offset = wanted
        if wanted < end:
            return 0
    return 0


@cython.final
cdef class QueueGrant:
    """One message queue, granted to one consumer of a group under one epoch.

    ``files`` gives ``log_file(commit_log_offset) -> (Mapping, base)`` and ``queue_file(slot, queue_offset) ->
    (Mapping, first entry)``, both None for what retention has removed, and ``oldest(slot)``, the queue offset of the
    oldest message that is there. One thread at a time takes; any thread acknowledges.
    """

    cdef Mapping shared
    cdef unsigned char *slot            # group-queue
    cdef unsigned char *queue_slot
    cdef object files
    cdef readonly object queue
    cdef readonly int queue_slot_number
    cdef readonly uint64_t epoch
    cdef readonly uint64_t next_offset
    cdef TagSet tags
    cdef tuple queue_file               # borrowed
    cdef tuple log_file                 # borrowed
    cdef uint64_t entries_per_file
    cdef uint64_t log_file_bytes
    cdef int64_t timeout_ns
    cdef readonly list damaged          # (queue_offset, commit_log_offset, outcome), for the caller to report and clear
    cdef readonly uint64_t skipped      # messages that were finished because they are not wanted
    cdef public uint64_t expired        # messages removed before they were taken, for the caller to report and clear

    def __init__(self, Mapping shared not None, Py_ssize_t group_queue_at, Py_ssize_t queue_at, int queue_slot_number,
                 object queue, uint64_t epoch, object files, TagSet tags not None, *, uint64_t log_file_bytes,
                 uint64_t entries_per_file, int64_t timeout_ms):
        self.shared = shared
        self.slot = shared.address + group_queue_at
        self.queue_slot = shared.address + queue_at
        self.queue_slot_number = queue_slot_number
        self.queue = queue
        self.epoch = epoch
        self.files = files
        self.tags = tags
        self.log_file_bytes = log_file_bytes
        self.entries_per_file = entries_per_file
        self.timeout_ns = timeout_ms * 1000000
        self.damaged = []
        self._acknowledge(NULL, 0)  # finishes what a dead owner left half done
        self.next_offset = load64(self.slot + G_COMMITTED)

    @property
    def committed_offset(self):
        return load64(self.slot + G_COMMITTED)

    @property
    def max_offset(self):
        return load64(self.queue_slot + Q_MAX_OFFSET)

    @property
    def has_more(self):
        return load64(self.queue_slot + Q_MAX_OFFSET) > self.next_offset

    @property
    def valid(self):
        return load64(self.slot + G_EPOCH) == self.epoch

    def arm(self, int lane):
        """Ask to be woken on ``lane``. True when a message is there already, so that the caller must not sleep."""
        or64(self.queue_slot + Q_WAITING_LANES, <uint64_t>1 << lane)
        return load64_seq(self.queue_slot + Q_MAX_OFFSET) > self.next_offset

    def take(self, Py_ssize_t limit, uint64_t span):
        """Return up to ``limit`` messages from ``next_offset`` on, none at ``committed_offset + span`` or above."""
        cdef uint64_t end = load64(self.queue_slot + Q_MAX_OFFSET)
        cdef uint64_t offset = self.next_offset
        cdef uint64_t low = load64(self.queue_slot + Q_MIN_OFFSET)
        cdef int64_t log_begin = load64(self.shared.address + H_MIN_OFFSET)
        cdef uint64_t last
        cdef list unwanted = None
        cdef list messages = []
        cdef object message
        cdef Entry entry
        cdef uint64_t most = offset + (MOST_LOOKED_AT if self.tags.passes is None else MOST_ASKED_ABOUT)
        if load64(self.slot + G_EPOCH) != self.epoch:
            return messages
        if self.tags.count or self.tags.passes is not None:
            span = min(span, <uint64_t>ACK_WINDOW)  # what is not wanted is finished by its bit
        if load64(self.slot + G_COMMITTED) < low:
            if not self._expire(low, offset):
                return messages
            offset = max(offset, low)
        last = load64(self.slot + G_COMMITTED) + span
        if end > last:
            end = last
        while offset < end and len(messages) < limit and offset < most:
            # A bit is cleared when the committed offset is about to pass it, which advance_to has said before.
            if is_acknowledged(self.slot, offset) or offset < load64(self.slot + G_ADVANCE_TO):
                offset += 1
                continue
            message = None
            if not self._read_entry(offset, &entry) or 0 <= entry.commit_log_offset < log_begin:
                message = _GONE
            elif self.tags.may_match(entry.tags_code):
                message = self._message(offset, entry.commit_log_offset, entry.size)
            elif self._skip(&offset, span, log_begin):
                log_begin = load64(self.shared.address + H_MIN_OFFSET)
                end = min(load64(self.queue_slot + Q_MAX_OFFSET), load64(self.slot + G_COMMITTED) + span)
                continue
            else:
                return messages
            if message is _GONE:
                low = self.files.oldest(self.queue_slot_number)
                if low > offset:
                    if not self._expire(low, offset):
                        return messages
                    offset = low
                    log_begin = load64(self.shared.address + H_MIN_OFFSET)
                    end = min(load64(self.queue_slot + Q_MAX_OFFSET), load64(self.slot + G_COMMITTED) + span)
                    continue
                self.damaged.append((offset, entry.commit_log_offset, BAD_OFFSET))  # an entry between good ones is damaged
                message = None
            if message is not None:
                messages.append(message)
            else:
                if unwanted is None:
                    unwanted = []
                self.skipped += 1
                unwanted.append(offset)
                if len(unwanted) == 1024:
                    self.next_offset = offset + 1
                    if not self._acknowledge_offsets(unwanted):
                        return messages
                    unwanted = None
                    last = load64(self.slot + G_COMMITTED) + span
                    end = min(load64(self.queue_slot + Q_MAX_OFFSET), last)
            offset += 1
        self.next_offset = offset
        store64(self.slot + G_TAKEN_TO, offset)
        if unwanted is not None:
            self._acknowledge_offsets(unwanted)
        return messages

    def acknowledge(self, ReceivedMessage message not None):
        """Mark one message finished. False when the epoch is old: somebody else has the queue now."""
        cdef uint64_t offset = get_i64(message.at + R_QUEUE_OFFSET)
        return self._acknowledge(&offset, 1)

    def acknowledge_offsets(self, list offsets not None):
        """Mark messages finished by their queue offsets, under one lock. False when the epoch is old."""
        return self._acknowledge_offsets(offsets)

    def begin(self, ReceivedMessage message not None):
        """Count a delivery attempt before the handler runs, and give its number to the message. False when the epoch is old.

        For the one message that an ordered queue stands at: the count survives this process.
        """
        cdef uint64_t offset = get_i64(message.at + R_QUEUE_OFFSET)
        cdef int first = attempt_of(message.at)
        cdef int failure = mutex_try(self.slot + G_MUTEX, 30)
        cdef int attempt = 0
        if failure == EBUSY:
            with nogil:
                failure = mutex_wait(self.slot + G_MUTEX, self.timeout_ns)
                if failure == 0:
                    attempt = begin_section(self.slot, self.epoch, offset, first)
                    mutex_release(self.slot + G_MUTEX)
        elif failure == 0:
            attempt = begin_section(self.slot, self.epoch, offset, first)
            mutex_release(self.slot + G_MUTEX)
        if failure:
            self._raise_lock_failure(failure, "begin a message")
        if attempt:
            message.delivery_attempt = attempt
        return attempt > 0

    cdef bint _acknowledge_offsets(self, list offsets) except -1:
        cdef Py_ssize_t count = len(offsets)
        cdef Py_ssize_t number
        cdef uint64_t *values = <uint64_t *>malloc(max(1, count) * sizeof(uint64_t))
        if values == NULL:
            raise MemoryError()
        try:
            for number in range(count):
                values[number] = offsets[number]
            return self._acknowledge(values, count)
        finally:
            free(values)

    cdef bint _acknowledge(self, const uint64_t *offsets, Py_ssize_t count) except -1:
        cdef int failure = mutex_try(self.slot + G_MUTEX, 30)
        cdef int outcome = 0
        if failure == EBUSY:
            failure, outcome = self._acknowledge_slowly(offsets, count)
        elif failure == 0:
            outcome = acknowledge_section(self.slot, self.epoch, offsets, count)
            mutex_release(self.slot + G_MUTEX)
        if failure:
            self._raise_lock_failure(failure, "acknowledge")
        if outcome == 2:
            raise ValueError(f"acknowledged {offsets[0]} of {self.queue}, beyond {ACK_WINDOW} above the committed offset")
        reach_point(AT_ACK_FINISHED)
        return outcome == 1

    cdef bint _expire(self, uint64_t low, uint64_t start) except -1:
        """Count everything below ``low`` as finished. False when the epoch is old."""
        cdef int failure
        cdef int outcome = 0
        with nogil:
            failure = mutex_wait(self.slot + G_MUTEX, self.timeout_ns)
            if failure == 0:
                outcome = expire_section(self.slot, self.epoch, low, start, &self.expired)
                mutex_release(self.slot + G_MUTEX)
        if failure:
            self._raise_lock_failure(failure, "step over removed messages")
        return outcome == 1

    cdef int _raise_lock_failure(self, int failure, str doing) except -1:
        if failure == ETIMEDOUT:
            raise StoreBusy(
                f"waited {self.timeout_ns // 1000000} ms to {doing} in {self.queue}, held by thread "
                f"{mutex_owner(self.slot + G_MUTEX)}")
        raise OSError(failure, os.strerror(failure))

    cdef bint _skip(self, uint64_t *offset, uint64_t span, uint64_t log_begin) except -1:
        """Finish the messages from ``offset`` on that the tags cannot match, and move it. False when the epoch is old."""
        cdef Skip skip
        cdef int failure
        cdef Mapping mapping = lent(self.queue_file, 0)
        cdef uint64_t first
        if mapping is None:
            return True
        first = self.queue_file[1]
        skip.shared = self.shared.address
        skip.slot = self.slot
        skip.epoch = self.epoch
        skip.entry = mapping.address + (offset[0] - first) * ENTRY_SIZE
        skip.codes = self.tags.codes
        skip.code_count = self.tags.count
        skip.log_begin = log_begin
        skip.offset = offset[0]
        skip.end = min(load64(self.queue_slot + Q_MAX_OFFSET), first + self.entries_per_file)
        skip.span = span
        failure = skip_unwanted(&skip, BRIEFLY, 0)
        if failure == EBUSY or failure == 0 and skip.offset - offset[0] >= skip.span:
            with nogil:
                failure = skip_unwanted(&skip, AT_LENGTH, self.timeout_ns)
        self.skipped += skip.offset - offset[0]
        offset[0] = skip.offset
        if failure == ETIMEDOUT:
            raise StoreBusy(
                f"waited {self.timeout_ns // 1000000} ms to skip messages of {self.queue}, held by thread "
                f"{mutex_owner(self.slot + G_MUTEX)}")
        if failure and failure != ESTALE:
            raise OSError(failure, os.strerror(failure))
        return failure == 0

    cdef (int, int) _acknowledge_slowly(self, const uint64_t *offsets, Py_ssize_t count):
        cdef int failure
        cdef int outcome = 0
        with nogil:
            failure = mutex_wait(self.slot + G_MUTEX, self.timeout_ns)
            if failure == 0:
                outcome = acknowledge_section(self.slot, self.epoch, offsets, count)
                mutex_release(self.slot + G_MUTEX)
        return failure, outcome

    cdef int _read_entry(self, uint64_t offset, Entry *entry) except -1:
        """0 for an entry whose file was removed."""
        cdef Mapping mapping = lent(self.queue_file, 0)
        cdef tuple provided
        cdef const unsigned char *at
        if mapping is None or not self.queue_file[1] <= offset < <uint64_t>self.queue_file[1] + self.entries_per_file:
            provided = self.files.queue_file(self.queue_slot_number, offset)
            if provided is None:
                entry.commit_log_offset = -1
                return 0
            self.queue_file = borrowed(provided)
            mapping = provided[0]
        at = mapping.address + (offset - <uint64_t>self.queue_file[1]) * ENTRY_SIZE
        entry.commit_log_offset = get_i64(at)
        entry.size = get_i32(at + E_SIZE)
        entry.tags_code = get_i64(at + E_TAGS_CODE)
        return 1

    cdef object _message(self, uint64_t offset, int64_t commit_log_offset, int32_t size):
        """The record of an entry, checked against it; None when it is damaged or not wanted after all, or ``_GONE``."""
        cdef ReceivedMessage message
        cdef Frame frame
        cdef bytes record = None
        cdef const unsigned char *at = NULL
        cdef int found = BAD_SIZE
        cdef uint64_t base
        cdef Mapping mapping
        cdef tuple provided
        if (size < RECORD_FIXED_SIZE or commit_log_offset < 0
                or commit_log_offset > <int64_t>load64(self.shared.address + H_PUBLISHED_TO) - size):
            self.damaged.append((offset, commit_log_offset, BAD_OFFSET))  # the entry: there is no such record
            return None
        mapping = lent(self.log_file, 0)
        if mapping is None or not self.log_file[1] <= commit_log_offset < <int64_t>self.log_file[1] + <int64_t>self.log_file_bytes:
            try:
                provided = self.files.log_file(commit_log_offset)
            except FileNotFoundError:
                self.damaged.append((offset, commit_log_offset, IS_END))
                return None
            if provided is None:
                return _GONE
            self.log_file = borrowed(provided)
            mapping = provided[0]
        base = self.log_file[1]
        if size <= <int64_t>(base + self.log_file_bytes) - commit_log_offset:
            at = mapping.address + (commit_log_offset - base)
            record = PyBytes_FromStringAndSize(<const char *>at, size)
            at = <const unsigned char *>PyBytes_AS_STRING(record)
            found = parse(at, size, commit_log_offset, &frame)
            if found == IS_RECORD and (frame.size != size or get_i64(at + R_QUEUE_OFFSET) != <int64_t>offset
                                       or get_i32(at + R_QUEUE_ID) != get_queue_id(self.queue_slot)
                                       or not has_topic(self.queue_slot, at, &frame)):
                found = BAD_OFFSET
        if found != IS_RECORD:
            if commit_log_offset < <int64_t>load64(self.shared.address + H_MIN_OFFSET):
                return _GONE
            self.damaged.append((offset, commit_log_offset, found))
            return None
        if not self.tags.matches(at, &frame):
            return None
        message = received(record, 0, &frame, self.queue, attempt_of(at), True)
        return message if self.tags.passes is None or self.tags.passes(message) else None
