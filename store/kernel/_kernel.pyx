# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False, auto_pickle=False
"""The compiled part of the store: loops over bytes, atomics, the append section, acknowledgements, futexes.

Rules of this file

1. Code that holds a mutex between processes is a ``noexcept nogil`` function: no Python, no allocation, no I/O, so
   the compiler proves that it is short. The exception is :class:`RobustMutex`, for the rare paths.
2. No thread blocks on such a mutex while it holds the GIL: it tries for a moment, then waits in slices without the GIL.
3. Entry points check their arguments once; below them positions are trusted.
4. Bytes that break the format are a return value, not an exception: the caller knows file and position.
5. A pointer into a mapping is used only while a Python reference to its :class:`Mapping` is held.

The parts are the files that are included at the end, each below those it uses. They are one module, so that the
compiler can inline small functions across parts (docs/decisions/0017).

- ``record/``: what a record is, what is sent and what is received
- ``dispatch/``: what recovery and compaction derive from records, and what a check of a store compares with them
- ``append/``: the append section, and what leads up to it
- ``groups/``: taking and acknowledging
- ``arrow/``: records as columns, and columns as records, for Spark
- ``timer/``: messages that wait for their time
- ``wire/``: records that a broker sent, what a client sends to it, and the same for a server: what it is sent and sends
- ``serve/``: requests of clients that are answered without a line of Python
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.ref cimport PyObject, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from cpython.weakref cimport PyWeakref_GetObject, PyWeakref_NewRef
from libc.errno cimport EAGAIN, EBUSY, EINTR, EINVAL, EIO, EOPNOTSUPP, ESTALE, ETIMEDOUT, errno
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc, strtoull
from libc.string cimport memchr, memcmp, memcpy, memmove, memset, strlen

import os
import sys

from rmqclient.store.bodies import DEFAULT_LIMIT as _DEFAULT_LIMIT
from rmqclient.store.bodies import open_body
from rmqclient.store.errors import (
    BatchTooLarge,
    BodyTooLarge,
    BodyUnreadable,
    MessageRejected,
    OffsetOutOfRange,
    PageCacheBusy,
    PropertiesTooLarge,
    QueueError,
    StoreBusy,
    StoreFull,
    StorePoisoned,
    TimerFull,
    TopicNotWritable,
)
from rmqclient.store.layout import HANDLING_BOUNDS_MS as _HANDLING_BOUNDS_MS
from rmqclient.store.message_queue import MessageQueue

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef extern from "crc32.h":
    void rmq_crc32_init() nogil
    uint32_t rmq_crc32(uint32_t crc, const unsigned char *data, size_t size) nogil
    const char *rmq_crc32_name()

cdef extern from "shared_memory.h" nogil:
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
    void expect_read(const void *at, uint64_t size)
    int lowest_bit(uint64_t word)
    int count_bits(uint64_t word)
    int64_t wall_clock_ns()
    int64_t wall_clock_ms()
    int64_t elapsed_ns()
    int64_t boottime_ns()
    ctypedef struct Clock "rmq_clock":
        pass
    Clock *clock_words
    int futex_wait(void *word, uint32_t expected, int64_t timeout_ns)
    int futex_wait_adaptive(void *word, uint32_t expected, int64_t timeout_ns)
    int futex_wake(void *word, int count)
    ctypedef struct Owner "rmq_owner":
        uint64_t number
        int lock_file
    const Owner no_owner
    int owner_enter(int lock_file, uint64_t number)
    int byte_unlock(int lock_file, int64_t byte)
    int mutex_try(void *at, const Owner *me, int spins)
    int mutex_wait(void *at, const Owner *me, int64_t timeout_ns)
    int mutex_inherit(void *at, const Owner *me, uint64_t seen)
    void mutex_release(void *at, const Owner *me)
    uint64_t mutex_owner(const void *at)
    int mutex_process(const void *at)
    int armed_point
    int armed_signal
    long armed_passes
    void reach_point "reach"(int point)
    int MADV_POPULATE_WRITE, MADV_DONTNEED, MADV_RANDOM

cdef extern from "room.h" nogil:
    bint can_share_blocks(int fd)
    int watch(void *begin, size_t size, const char *path)
    void unwatch(int number)
    bint can_store(void *at, size_t size)
    ctypedef struct Watched:
        const char *reserve
    Watched watched[1]

cdef extern from "names.h" nogil:
    ctypedef struct Name "rmq_name":
        const char *text
        Py_ssize_t size
    Name N_CRC, N_DELAY, N_INNER_NUM, N_KEYS, N_REAL_QID, N_REAL_TOPIC, N_RETRY_TOPIC, N_SHARDING_KEY, N_TAGS
    Name N_TIMER_DELIVER_MS, N_TIMER_DEL_UNIQKEY, N_TIMER_OUT_MS, N_TIMER_QUEUE_OFFSET, N_TIMER_ROLL_TIMES, N_UNIQ_KEY
    const char HEX[16]
    Name T_HALF, T_OPERATION, T_RETRY_PREFIX, T_SCHEDULE, T_TIMER

cdef extern from "<sys/mman.h>" nogil:
    void *mmap(void *address, size_t length, int protection, int flags, int fd, long offset)
    int munmap(void *address, size_t length)
    int madvise(void *address, size_t length, int advice)
    int mincore(void *address, size_t length, unsigned char *pages)
    int PROT_READ, PROT_WRITE, MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_NORESERVE
    void *MAP_FAILED

cdef extern from "<fcntl.h>" nogil:
    int c_open "open"(const char *path, int flags)
    int fallocate(int fd, int mode, long offset, long size)
    int O_RDONLY, O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    ssize_t c_read "read"(int fd, void *buffer, size_t size)
    ssize_t c_pread "pread"(int fd, void *buffer, size_t size, long offset)
    int c_close "close"(int fd)


# --- constants, compared with store/layout.py when store is imported --------------------------------------------------

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
    LONG_TOPIC_MAGIC = -626843477       # of 5.x brokers, for topics of more than 127 bytes; on the wire only
    BLANK_MAGIC = -875286124
    BLANK_SIZE = 8
    CRC_PROPERTY_SIZE = 20
    MAX_PROPERTIES_BYTES = 32767
    MAX_SENT_PROPERTIES_BYTES = 31000
    SYS_FLAG_COMPRESSED = 0x1
    SYS_FLAG_BORN_HOST_V6 = 0x10
    SYS_FLAG_STORE_HOST_V6 = 0x20
    SYS_FLAG_TRANSACTION = 0xC
    SYS_FLAG_COMMITTED = 0x8
    # consume queue entry
    ENTRY_SIZE = 20
    E_SIZE = 8
    E_TAGS_CODE = 12
    MOST_TAGS_CODE = 2147483647
    # runtime header
    H_APPEND_MUTEX = 192
    H_APPEND_STAGE = 256
    H_APPEND_FROM = 264
    H_WRITTEN_TO = 272
    H_LAST_STORE_TIMESTAMP = 280
    H_PUBLISHED_TO = 288
    H_PROGRESS_AT = 296
    H_PROGRESS_TO = 304
    H_BYTES_BEFORE = 312
    H_OTHER_BYTES_BEFORE = 320
    H_FOLLOWING_LANES = 328
    H_RESTRICTED = 336
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
    Q_BYTES_IN = 216
    # group-queue slot
    G_DELIVERED = 136
    G_BYTES_OUT = 144
    G_FAILED = 152
    G_RETRIED = 160
    G_DEAD_LETTERED = 168
    G_SKIPPED = 176
    G_LOST = 184
    G_MUTEX = 192
    G_ORPHANED = 240
    G_COUNTING = 248
    G_EPOCH = 256
    G_OWNER = 264
    G_LEASE_UNTIL = 280
    G_COMMITTED = 288
    G_ADVANCE_TO = 296
    G_TAKEN_TO = 304
    G_FLOW_CONTROL = 312
    G_ACKNOWLEDGED = 320
    G_PAUSED = 576
    G_HELD_OFFSET = 584
    G_HELD_ATTEMPTS = 592
    G_SEEK_TO = 600
    G_HANDLED = 624
    G_COUNTED_FROM = 632
    GROUP_QUEUE_SLOT_SIZE = 640
    ACK_WINDOW = 2048
    # timer
    T_DONE_TO = 0
    T_CLEARING_TO = 8
    TIMER_HEADER_SIZE = 4096
    MOST_ATTEMPTS = 2147483646
    # clock
    C_AHEAD = 0
    C_EXTRA_SPEED = 8
    C_WALL_SINCE = 16
    C_BOOTTIME_SINCE = 24
    C_MOVED = 32
    # header.append_stage
    IDLE = 0
    COPYING = 1
    RECORDED = 2

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
    "header.bytes_before": H_BYTES_BEFORE, "header.other_bytes_before": H_OTHER_BYTES_BEFORE,
    "header.following_lanes": H_FOLLOWING_LANES, "header.restricted": H_RESTRICTED,
    "header.poisoned": H_POISONED, "header.disk_full": H_DISK_FULL,
    "header.min_offset": H_MIN_OFFSET, "header.prepare_word": H_PREPARE_WORD,
    "queue.topic_size": Q_TOPIC_SIZE, "queue.topic": Q_TOPIC,
    "queue.max_offset": Q_MAX_OFFSET, "queue.min_offset": Q_MIN_OFFSET, "queue.waiting_lanes": Q_WAITING_LANES,
    "queue.bytes_in": Q_BYTES_IN,
    "group_queue.delivered": G_DELIVERED, "group_queue.bytes_out": G_BYTES_OUT, "group_queue.failed": G_FAILED,
    "group_queue.retried": G_RETRIED, "group_queue.dead_lettered": G_DEAD_LETTERED, "group_queue.skipped": G_SKIPPED,
    "group_queue.lost": G_LOST, "group_queue.orphaned": G_ORPHANED, "group_queue.counting": G_COUNTING,
    "group_queue.handled": G_HANDLED, "group_queue.counted_from": G_COUNTED_FROM,
    "group_queue.mutex": G_MUTEX, "group_queue.epoch": G_EPOCH, "group_queue.owner": G_OWNER,
    "group_queue.lease_until": G_LEASE_UNTIL, "group_queue.committed_offset": G_COMMITTED,
    "group_queue.advance_to": G_ADVANCE_TO, "group_queue.taken_to": G_TAKEN_TO,
    "group_queue.flow_control": G_FLOW_CONTROL, "group_queue.acknowledged": G_ACKNOWLEDGED,
    "group_queue.paused": G_PAUSED,
    "group_queue.held_offset": G_HELD_OFFSET, "group_queue.held_attempts": G_HELD_ATTEMPTS,
    "group_queue.seek_to": G_SEEK_TO, "group_queue.size_of": GROUP_QUEUE_SLOT_SIZE,
    "timer.done_to": T_DONE_TO, "timer.clearing_to": T_CLEARING_TO, "timer.size_of": TIMER_HEADER_SIZE,
    "clock.ahead_ns": C_AHEAD, "clock.extra_speed": C_EXTRA_SPEED, "clock.wall_since_ns": C_WALL_SINCE,
    "clock.boottime_since_ns": C_BOOTTIME_SINCE, "clock.moved": C_MOVED,
    "RECORD_MAGIC": RECORD_MAGIC, "BLANK_MAGIC": BLANK_MAGIC, "RECORD_FIXED_SIZE": RECORD_FIXED_SIZE,
    "CRC_PROPERTY_SIZE": CRC_PROPERTY_SIZE, "MAX_PROPERTIES_BYTES": MAX_PROPERTIES_BYTES,
    "MAX_SENT_PROPERTIES_BYTES": MAX_SENT_PROPERTIES_BYTES,
    "ARRIVAL_LANES_AT": ARRIVAL_LANES_AT, "ARRIVAL_LANE_STRIDE": ARRIVAL_LANE_STRIDE, "ACK_WINDOW": ACK_WINDOW,
    "MOST_TAGS_CODE": MOST_TAGS_CODE, "IDLE": IDLE, "COPYING": COPYING, "RECORDED": RECORDED,
}

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
    AT_OTHER_QUEUE_PUBLISHED = 13
    AT_ACK_LOCKED = 20
    AT_ACK_MARKED = 21
    AT_ACK_ADVANCING = 22
    AT_ACK_CLEARED = 23
    AT_ACK_FINISHED = 24
    AT_INDEX_SLOT_WRITTEN = 30
    AT_COMMIT_HALF_BACK = 33

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


def wall_clock():
    return wall_clock_ns()


def elapsed():
    return elapsed_ns()

include "locks.pxi"
include "memory.pxi"
include "resident.pxi"
include "allocator.pxi"
include "record/text.pxi"
include "record/properties.pxi"
include "record/frame.pxi"
include "record/delays.pxi"
include "record/sent.pxi"
include "record/received.pxi"
include "record/inner_batch.pxi"
include "dispatch/range.pxi"
include "dispatch/queue_map.pxi"
include "dispatch/entries.pxi"
include "dispatch/index.pxi"
include "dispatch/matching.pxi"
include "groups/running.pxi"
include "append/section.pxi"
include "append/route.pxi"
include "append/staging.pxi"
include "append/copies.pxi"
include "append/writer.pxi"
include "append/ahead.pxi"
include "append/commit.pxi"
include "append/results.pxi"
include "append/appender.pxi"
include "groups/sections.pxi"
include "groups/tags.pxi"
include "groups/skip.pxi"
include "groups/reader.pxi"
include "groups/grant.pxi"
include "arrow/buffers.pxi"
include "arrow/texts.pxi"
include "arrow/columns.pxi"
include "arrow/collect.pxi"
include "dispatch/latest.pxi"
include "arrow/given.pxi"
include "arrow/staged.pxi"
include "arrow/landed.pxi"
include "timer/heap.pxi"
include "timer/timed.pxi"
include "wire/pulled.pxi"
include "wire/outgoing.pxi"
include "wire/incoming.pxi"
include "wire/frames.pxi"
include "serve/texts.pxi"
include "serve/heads.pxi"
include "serve/plain.pxi"
include "serve/found.pxi"
