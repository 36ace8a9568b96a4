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
    HandlerError,
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
    long PyLong_AsLongAndOverflow(object number, int *overflow) except? -1
    object PyContext_CopyCurrent()
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context)
    void PyErr_Clear()

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
    int watched_count
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


# --- constants: the layout and the crash points, and what only the kernel knows -------------------------------------------

include "constants.pxi"

cdef enum:
    LONG_TOPIC_MAGIC = -626843477       # of 5.x brokers, for topics of more than 127 bytes; on the wire only
    SYS_FLAG_TRANSACTION = 0xC
    SYS_FLAG_COMMITTED = 0x8
    MOST_ATTEMPTS = 2147483646

FINGERPRINT = LAYOUT_FINGERPRINT

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
