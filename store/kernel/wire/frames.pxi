# --- frames: records of one queue as they stand in the log, for the answer to a pull ----------------------------------

cdef enum:                        # how a read ended
    READ_FOUND = 0
    READ_NONE_WANTED = 1          # there are messages, and the tags or the predicate want none of those looked at
    READ_AT_END = 2               # the next message is not there yet
    READ_BEYOND_END = 3
    READ_REMOVED = 4              # retention has removed the message; the next offset is the oldest that is there

cdef enum:                        # what became of one offset
    ADDED = 0
    PASSED = 1                    # unwanted, damaged, or compacted away
    FULL = 2                      # there is no room for it in this answer
    GONE = 3                      # removed: the offset is now that of the oldest message

cdef enum:
    MOST_UNWRAPPED_BYTES = 8 << 20  # clients take frames up to 16 MiB

READ = {"FOUND": READ_FOUND, "NONE_WANTED": READ_NONE_WANTED, "AT_END": READ_AT_END, "BEYOND_END": READ_BEYOND_END,
        "REMOVED": READ_REMOVED}

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **bytes, Py_ssize_t size) except -1
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *at, Py_ssize_t size) except NULL


@cython.final
cdef class _FrameList:
    """Records one behind the other, in the memory of the ``bytes`` that they become."""

    cdef PyObject *content
    cdef Py_ssize_t capacity
    cdef Py_ssize_t used
    cdef int count
    cdef const unsigned char *store_host    # what clients are to find in the records; NULL: what stands there
    cdef int store_size

    def __dealloc__(self):
        Py_XDECREF(self.content)

    cdef unsigned char *reserve(self, Py_ssize_t more) except NULL:
        """Make room for ``more`` bytes; return where they begin."""
        if self.content == NULL:
            self.capacity = max(self.capacity, more)
            self.content = new_bytes(NULL, self.capacity)
        elif self.used + more > self.capacity:
            self.capacity = max(2 * self.capacity, self.used + more)
            _PyBytes_Resize(&self.content, self.capacity)
        return <unsigned char *>PyBytes_AS_STRING(<bytes>self.content) + self.used

    cdef int keep(self, Frame *frame) except -1:
        """Count the valid record that was written at the place reserved."""
        cdef unsigned char *at = <unsigned char *>PyBytes_AS_STRING(<bytes>self.content) + self.used
        if self.store_host != NULL:
            put_store_host(at, frame, self.store_host, self.store_size)
        self.used += frame.size
        self.count += 1
        return 0

    cdef int add(self, ReceivedMessage message) except -1:
        """Add a copy of a record that was read before."""
        cdef Frame frame = message.frame
        memcpy(self.reserve(frame.size + LONG_HOST_SIZE), message.at, frame.size)
        return self.keep(&frame)

    cdef bytes taken(self):
        """Return all of it; the list is of no use afterwards."""
        cdef bytes content
        if self.count == 0:
            return b""
        _PyBytes_Resize(&self.content, self.used)
        content = <bytes>self.content
        return content


@cython.final
cdef class RecordReader:
    """Reads the records of one queue as they stand, for pulls of clients. One thread at a time reads."""

    cdef Mapping shared
    cdef unsigned char *queue_slot
    cdef _QueueReader reader
    cdef readonly object queue

    def __init__(self, Mapping shared not None, Py_ssize_t queue_at, int queue_slot_number, object queue, object files, *,
                 uint64_t log_file_bytes, uint64_t entries_per_file, int64_t max_opened_body_bytes, object compacted=None):
        cdef _QueueReader reader = _QueueReader.__new__(_QueueReader)
        self.shared = reader.shared = shared
        self.queue_slot = reader.queue_slot = shared.address + queue_at
        reader.queue_slot_number = queue_slot_number
        self.queue = reader.queue = queue
        self.reader = reader
        reader.files = files
        reader.log_file_bytes = log_file_bytes
        reader.entries_per_file = entries_per_file
        reader.max_opened_body_bytes = min(max_opened_body_bytes, <int64_t>MOST_UNWRAPPED_BYTES)
        reader.compacted = compacted
        reader.damaged = []

    @property
    def max_offset(self):
        return load64(self.queue_slot + Q_MAX_OFFSET)

    @property
    def damaged(self):
        return self.reader.damaged

    def read(self, uint64_t offset, TagSet tags not None, *, int most_messages, Py_ssize_t most_bytes,
             uint64_t most_looked_at, bytes store_host=None, bint unwrap=False):
        cdef uint64_t end = load64(self.queue_slot + Q_MAX_OFFSET)
        cdef _FrameList found
        cdef int outcome = PASSED
        if most_messages < 1 or most_looked_at < 1:
            raise ValueError(f"most_messages={most_messages}, most_looked_at={most_looked_at}: at least 1")
        if offset >= end:
            return b"", end, 0, READ_AT_END if offset == end else READ_BEYOND_END
        self.reader.tags = tags
        self.reader.ahead, self.reader.ahead_offset = None, 0  # the last read may have been another group's
        end = min(end, offset + most_looked_at)
        found = self._new_list(offset, end, most_messages, most_bytes, store_host)
        while offset < end and found.count < most_messages and outcome < FULL:
            outcome = self._look(&offset, end, found, most_bytes, unwrap)
        if found.count:
            return found.taken(), offset, found.count, READ_FOUND
        return b"", offset, 0, READ_REMOVED if outcome == GONE else READ_NONE_WANTED

    cdef _FrameList _new_list(self, uint64_t offset, uint64_t end, int most_messages, Py_ssize_t most_bytes, bytes store_host):
        """Return an empty list with about as much room as the next messages need."""
        cdef _FrameList found = _FrameList.__new__(_FrameList)
        cdef Py_ssize_t more = 0
        cdef Entry entry
        if store_host is not None:
            found.store_host = <const unsigned char *>PyBytes_AS_STRING(store_host)
            found.store_size = <int>PyBytes_GET_SIZE(store_host)
            if found.store_size != HOST_SIZE and found.store_size != LONG_HOST_SIZE:
                raise ValueError(f"a host of {found.store_size} bytes: an address and a port have 8 or 20")
        end = min(end, offset + most_messages)
        while offset < end and found.capacity < most_bytes and self._peek(offset, &entry):
            more = max(0, entry.size) + LONG_HOST_SIZE if self.reader.tags.may_match(entry.tags_code) else 0
            if found.capacity + more > most_bytes:
                break
            found.capacity += more
            offset += 1
        return found

    cdef bint _peek(self, uint64_t offset, Entry *entry) except -1:
        """Read the entry of a message, if its file is at hand."""
        cdef tuple file = self.reader.queue_file
        if file is None or not file[1] <= offset < <uint64_t>file[1] + self.reader.entries_per_file:
            return False
        return self.reader.read_entry(offset, entry)

    cdef int _look(self, uint64_t *offset, uint64_t end, _FrameList found, Py_ssize_t most_bytes, bint unwrap) except -1:
        """Add the message at an offset, or step over it; say what became of it."""
        cdef Entry entry
        cdef ReceivedMessage message
        cdef int outcome = PASSED
        cdef int64_t log_begin = load64(self.shared.address + H_MIN_OFFSET)
        if self.reader.compacted is not None and offset[0] < self.reader.log_low:
            message = self.reader.compacted_message(offset[0])
            if message is not None:
                outcome = self._add_message(message, found, most_bytes)
        elif not self.reader.read_entry(offset[0], &entry) or 0 <= entry.commit_log_offset < log_begin:
            return self._step_over_removed(offset, &entry, found)
        elif not self.reader.tags.may_match(entry.tags_code):
            offset[0] = self._first_wanted(offset[0], end, log_begin)
            return PASSED
        else:
            outcome = self._add(offset[0], &entry, found, most_bytes, unwrap)
            if outcome == GONE:
                return self._step_over_removed(offset, &entry, found)
        if outcome != FULL:
            offset[0] += 1
        return outcome

    cdef int _step_over_removed(self, uint64_t *offset, const Entry *entry, _FrameList found) except -1:
        """Move an offset whose message is not there, or end the answer before it, so that the next one tells of it."""
        cdef uint64_t low = self.reader.oldest()
        if low <= offset[0]:
            if not self.reader.is_in_compacted(offset[0]):
                self.reader.damage(offset[0], entry, FOUND_BAD_OFFSET)
                offset[0] += 1
            return PASSED
        if self.reader.compacted is not None:
            offset[0] = low
            return PASSED
        if found.count:
            return FULL
        offset[0] = low
        return GONE

    cdef uint64_t _first_wanted(self, uint64_t offset, uint64_t end, uint64_t log_begin) except? 0:
        """The first offset behind an unwanted one whose entry may be wanted or whose record is removed."""
        cdef Mapping mapping = lent(self.reader.queue_file, 0)
        cdef uint64_t first
        cdef Skip skip
        if mapping is None:
            return offset + 1
        first = self.reader.queue_file[1]
        skip.entry = mapping.address + (offset - first) * CONSUME_QUEUE_ENTRY_SIZE
        skip.codes = self.reader.tags.codes
        skip.code_count = self.reader.tags.count
        skip.log_begin = log_begin
        skip.offset = offset
        return max(offset + 1, first_wanted(&skip, min(end, first + self.reader.entries_per_file)))

    cdef int _add(self, uint64_t offset, const Entry *entry, _FrameList found, Py_ssize_t most_bytes, bint unwrap) except -1:
        """Copy the record of an entry, and keep the copy if it is whole and wanted."""
        cdef Frame frame
        cdef Mapping mapping
        cdef unsigned char *at
        cdef uint64_t position
        cdef int outcome
        if (entry.size < RECORD_FIXED_SIZE or entry.commit_log_offset < 0
                or entry.commit_log_offset > <int64_t>load64(self.shared.address + H_PUBLISHED_TO) - entry.size):
            return self._damaged(offset, entry, FOUND_BAD_OFFSET)
        if found.count and found.used + entry.size > most_bytes:
            return FULL
        try:
            mapping = self.reader.log_of(entry.commit_log_offset)
        except FileNotFoundError:
            return self._damaged(offset, entry, FOUND_END)
        if mapping is None:
            return GONE
        position = entry.commit_log_offset - <uint64_t>self.reader.log_file[1]
        if <uint64_t>entry.size > self.reader.log_file_bytes - position:
            return self._damaged(offset, entry, FOUND_BAD_SIZE)
        at = found.reserve(entry.size + LONG_HOST_SIZE)
        memcpy(at, mapping.address + position, entry.size)
        outcome = parse(at, entry.size, entry.commit_log_offset, &frame)
        if outcome == FOUND_RECORD and not self.reader.is_of_entry(at, &frame, offset, entry):
            outcome = FOUND_BAD_OFFSET
        if outcome != FOUND_RECORD:
            if entry.commit_log_offset < <int64_t>load64(self.shared.address + H_MIN_OFFSET):
                return GONE
            return self._damaged(offset, entry, outcome)
        if self.reader.tags.passes is not None or unwrap and is_inner_batch(at):
            return self._add_asked(at, &frame, found, unwrap)
        if not self.reader.tags.matches(at, &frame):
            return PASSED
        found.keep(&frame)
        return ADDED

    cdef int _damaged(self, uint64_t offset, const Entry *entry, int outcome) except -1:
        self.reader.damage(offset, entry, outcome)
        return PASSED

    cdef int _add_asked(self, const unsigned char *at, Frame *frame, _FrameList found, bint unwrap) except -1:
        """Add a record, or the messages of a batch, if the predicate wants them. It is at the end of the list."""
        cdef int before = found.count
        cdef ReceivedMessage message = received(
            PyBytes_FromStringAndSize(<const char *>at, frame.size), 0, frame, self.queue, attempt_of(at), False)
        message.max_opened_body_bytes = self.reader.max_opened_body_bytes
        for each in unwrapped_for(message) if unwrap else (message,):
            if self.reader.is_wanted(<ReceivedMessage>each):
                found.add(<ReceivedMessage>each)
        return ADDED if found.count > before else PASSED

    cdef int _add_message(self, ReceivedMessage message, _FrameList found, Py_ssize_t most_bytes) except -1:
        """Add a message of the compacted file, if there is room; else it is asked for again."""
        if found.count and found.used + message.frame.size > most_bytes:
            self.reader.ahead = message
            return FULL
        found.add(message)
        return ADDED


cdef object unwrapped_for(ReceivedMessage record):
    """The messages of a batch, each with the place of the batch; the record itself if it is none or cannot be opened."""
    if not is_inner_batch(record.at):
        return (record,)
    try:
        return inner_messages(record)
    except QueueError:
        return (record,)


cdef void put_store_host(unsigned char *at, Frame *frame, const unsigned char *host, int size) noexcept nogil:
    """Put another store host into a record that has room behind it for a longer one, and renew the CRC over all of it."""
    cdef int host_at = store_host_at(at)
    cdef int before = store_host_size(at)
    cdef bint checked = has_our_crc(at, frame)
    if size == before and memcmp(at + host_at, host, size) == 0:
        return
    if size != before:
        memmove(at + host_at + size, at + host_at + before, frame.size - host_at - before)
        put_i32(at + R_SYS_FLAG, get_i32(at + R_SYS_FLAG) ^ SYS_FLAG_STORE_HOST_V6)
        frame.size += size - before
        put_i32(at, <int32_t>frame.size)
    memcpy(at + host_at, host, size)
    if checked:
        put_crc_property(at + frame.size - CRC_PROPERTY_SIZE, rmq_crc32(0, at, frame.size - CRC_PROPERTY_SIZE) & 0x7FFFFFFF)
