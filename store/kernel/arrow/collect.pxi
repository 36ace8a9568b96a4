# --- collecting: which messages become rows, by the entries of a queue or along the log -------------------------------

cdef enum:  # why collecting stopped before the end of the entries or of the log, beside the numbers of FOUND
    IS_FULL = 20          # the columns hold a batch
    IS_ELSEWHERE = 21     # the record is outside of this part of the log
    IS_GAP = 22           # earlier messages of the queue are missing
    IS_OTHER = 23         # a valid record, but not the one its entry stands for
    NO_MEMORY = 24
    IS_UNREADABLE = 25    # its body cannot be opened

STOPPED = {"END": FOUND_RECORD, "SHORT": FOUND_SHORT, "FULL": IS_FULL, "ELSEWHERE": IS_ELSEWHERE, "GAP": IS_GAP, "OTHER": IS_OTHER}

cdef enum:
    ENTRIES_AHEAD = 12    # entries whose records are prefetched while others are read
    BYTES_AHEAD = 2048    # the same along the log: by itself the processor looks ahead only within a page
    MOST_EXPECTED = 1536  # bytes of a record to prefetch: by then the processor prefetches by itself
    PRE_BLANK_SIZE = 2147483647
    MOST_AT_ONCE = 64 << 20  # bytes along the log, whose pages are resident afterwards

cdef struct WantedQueue:
    int64_t next                # below it all messages were met, or are not wanted
    int64_t stop


cdef bint is_possible(int64_t commit_log_offset, Py_ssize_t size) noexcept nogil:
    """Whether an entry can stand for a record. An unwritten entry and a pre-blank entry cannot."""
    return commit_log_offset >= 0 and RECORD_FIXED_SIZE <= size < PRE_BLANK_SIZE


cdef Py_ssize_t topic_of(const unsigned char *record, Py_ssize_t size) noexcept nogil:
    """Where the topic of an unchecked record begins, behind the byte of its size; -1 when sizes do not add up."""
    cdef Py_ssize_t at = R_BODY_SIZE + header_shift(record)
    cdef Py_ssize_t body_size
    if at + 7 > size:
        return -1
    body_size = get_i32(record + at)
    at += 4
    if body_size < 0 or at + body_size + 3 > size:
        return -1
    at += body_size + 1
    return at if at + record[at - 1] + 2 <= size and record[at - 1] < 128 else -1


@cython.final
cdef class Collector:
    """Adds messages to columns. It checks each record first; a record that breaks the format is a return value."""

    cdef readonly Columns columns
    cdef bint looks_for_named
    cdef TagSet tags
    cdef bytes tag_bytes                # for each tag its size in four bytes, then the tag
    cdef const unsigned char *tag_list  # the same
    cdef const unsigned char *tag_list_end
    cdef _QueueMap queues                # wanted along the log
    cdef WantedQueue *wanted            # by the number of their queue
    cdef list given                     # these numbers, in the order in which the queues were given
    cdef list batch                     # messages of the batch that is being added
    cdef int64_t batch_at               # its commit log offset
    cdef Py_ssize_t batch_next

    def __cinit__(self, Columns columns not None, *, tags=()):
        self.columns = columns
        self.tags = TagSet(tags)
        self.tag_bytes = b"".join([len(tag).to_bytes(4, "big") + tag for tag in self.tags.tags])
        self.tag_list = <const unsigned char *>PyBytes_AS_STRING(self.tag_bytes)
        self.tag_list_end = self.tag_list + PyBytes_GET_SIZE(self.tag_bytes)
        self.looks_for_named = self.tags.count > 0 or columns.wants_named

    def __dealloc__(self):
        free(self.wanted)

    # --- by entries ------------------------------------------------------------------------------------

    def add_entries(self, bytes entries not None, Py_ssize_t at, int64_t first, bytes topic not None, int32_t queue_id):
        cdef const unsigned char *entry = <const unsigned char *>PyBytes_AS_STRING(entries)
        cdef const unsigned char *name = <const unsigned char *>PyBytes_AS_STRING(topic)
        cdef Py_ssize_t name_size = PyBytes_GET_SIZE(topic)
        cdef Py_ssize_t count = PyBytes_GET_SIZE(entries) // CONSUME_QUEUE_ENTRY_SIZE
        cdef int found = FOUND_RECORD
        self._begin(at, count)
        with nogil:
            while at < count and found == FOUND_RECORD:
                found = self._add_entry(entry + at * CONSUME_QUEUE_ENTRY_SIZE, first + at, name, name_size, queue_id)
                at += found == FOUND_RECORD
        return self._ended(at, found)

    def add_queue(self, bytes entries not None, Py_ssize_t at, int64_t first, bytes topic not None, int32_t queue_id,
                  part, int64_t base):
        cdef const unsigned char *entry = <const unsigned char *>PyBytes_AS_STRING(entries)
        cdef const unsigned char *name = <const unsigned char *>PyBytes_AS_STRING(topic)
        cdef Py_ssize_t name_size = PyBytes_GET_SIZE(topic)
        cdef Py_ssize_t count = PyBytes_GET_SIZE(entries) // CONSUME_QUEUE_ENTRY_SIZE
        cdef Py_ssize_t begin = at
        cdef _Range log = _Range(part, base, base, base)
        cdef int found = FOUND_RECORD
        self._begin(at, count)
        with nogil:
            while at < count and found == FOUND_RECORD:
                if at + ENTRIES_AHEAD < count:
                    self._expect(log, entry + (at + ENTRIES_AHEAD) * CONSUME_QUEUE_ENTRY_SIZE)
                found = self._add_listed(entry + at * CONSUME_QUEUE_ENTRY_SIZE, first + at, name, name_size, queue_id, log)
                at += found == FOUND_RECORD
        log.use(get_i64(entry + (at - 1) * CONSUME_QUEUE_ENTRY_SIZE) - get_i64(entry + begin * CONSUME_QUEUE_ENTRY_SIZE) if at > begin else 0)
        return self._ended(at, found)

    cdef int _add_entry(self, const unsigned char *entry, int64_t queue_offset, const unsigned char *topic,
                        Py_ssize_t topic_size, int32_t queue_id) noexcept nogil:
        cdef int64_t offset = get_i64(entry)
        cdef int32_t size = get_i32(entry + E_SIZE)
        if not is_possible(offset, size):
            return FOUND_END
        if self.columns.is_full(topic_size):
            return IS_FULL
        if not (self.columns.put(COLUMN_TOPIC, topic, topic_size)
                and self.columns.put(COLUMN_BROKER_NAME, self.columns.broker_name, self.columns.broker_name_size)):
            return NO_MEMORY
        self.columns.put32(COLUMN_PARTITION, queue_id)
        self.columns.put64(COLUMN_OFFSET, queue_offset)
        self.columns.put64(COLUMN_COMMIT_LOG_OFFSET, offset)
        self.columns.put32(COLUMN_SIZE, size)
        self.columns.rows += 1
        return FOUND_RECORD

    cdef int _add_listed(self, const unsigned char *entry, int64_t queue_offset, const unsigned char *topic,
                         Py_ssize_t topic_size, int32_t queue_id, _Range log) noexcept nogil:
        cdef int64_t offset = get_i64(entry)
        cdef Py_ssize_t size = get_i32(entry + E_SIZE)
        cdef const unsigned char *record
        cdef Frame frame
        cdef int found
        if not is_possible(offset, size):
            return FOUND_END
        if not self.tags.may_match(get_i64(entry + E_TAGS_CODE)) and not holds_times(topic, topic_size):
            return FOUND_RECORD
        if self.columns.is_full(size):
            return IS_FULL
        if offset < log.base or offset - log.base > log.view.len - size:
            return IS_ELSEWHERE
        record = log.at(offset)
        found = parse(record, size, offset, &frame)
        if found != FOUND_RECORD:
            return found
        if (frame.size != size or get_i64(record + R_QUEUE_OFFSET) != queue_offset
                or get_i32(record + R_QUEUE_ID) != queue_id or frame.topic_size != topic_size
                or memcmp(record + frame.topic_at, topic, topic_size) != 0):
            return IS_OTHER
        return self._add(record, &frame)

    # --- along the log ---------------------------------------------------------------------------------

    def want(self, list queues not None):
        cdef WantedQueue *queue
        cdef int32_t number
        free(self.wanted)
        self.queues = _QueueMap.__new__(_QueueMap)
        self.given = []
        self.wanted = <WantedQueue *>calloc(max(1, len(queues)), sizeof(WantedQueue))
        if self.wanted == NULL:
            raise MemoryError()
        for topic, queue_id, start, stop in queues:
            number = self.queues.add(<const unsigned char *>PyBytes_AS_STRING(topic), PyBytes_GET_SIZE(topic), queue_id)
            queue = &self.wanted[number]
            queue.next = start
            queue.stop = stop
            self.given.append(number)

    def next_of(self, Py_ssize_t number):
        return self.wanted[<Py_ssize_t>self.given[number]].next

    def go_on(self, Py_ssize_t number, int64_t queue_offset):
        self.wanted[<Py_ssize_t>self.given[number]].next = queue_offset

    def add_log(self, part, int64_t base, int64_t file_end, int64_t start, int64_t stop):
        cdef _Range log = _Range(part, base, start, min(stop, start + MOST_AT_ONCE))
        cdef int64_t begin = start
        cdef WantedQueue *queue = NULL
        cdef Py_ssize_t number = -1
        cdef int64_t met = -1
        cdef int found
        if self.queues is None:
            raise ValueError("no queues are wanted yet")
        self._begin(0, 0)
        with nogil:
            start, found = self._add_records(log, start, file_end, &queue)
        log.use(min(start, log.stop) - begin)
        if found == IS_GAP:
            number = self.given.index(queue - self.wanted)
            met = get_i64(log.at(start) + R_QUEUE_OFFSET)
        return (*self._ended(start, found), number, met)

    cdef (int64_t, int) _add_records(self, _Range log, int64_t offset, int64_t file_end, WantedQueue **met) noexcept nogil:
        cdef const unsigned char *record
        cdef Py_ssize_t size, left
        cdef Frame frame
        cdef WantedQueue *queue = NULL
        cdef int found
        while offset < log.stop:
            record = log.at(offset)
            left = log.left(offset)
            size = get_i32(record) if left >= RECORD_FIXED_SIZE and get_i32(record + R_MAGIC) == RECORD_MAGIC else 0
            if not RECORD_FIXED_SIZE <= size <= left:
                found = frame_of(record, left, offset, &frame)
                if found == FOUND_BLANK:
                    return file_end, FOUND_RECORD
                return offset, found
            found = self._wants(record, size, &queue)
            if found == FOUND_RECORD and queue != NULL:
                if left - size > BYTES_AHEAD + MOST_EXPECTED:
                    expect_read(record + size + BYTES_AHEAD, min(size, <Py_ssize_t>MOST_EXPECTED))
                if self.columns.is_full(size):
                    return offset, IS_FULL
                found = parse(record, size, offset, &frame)
                if found == FOUND_RECORD and has_entry(record) and get_i64(record + R_QUEUE_OFFSET) != queue.next:
                    met[0] = queue
                    return offset, IS_GAP
                if found == FOUND_RECORD:
                    found = self._add(record, &frame)
                if found == FOUND_RECORD:
                    queue.next += has_entry(record)
            if found != FOUND_RECORD:
                return offset, found
            offset += size
        return offset, FOUND_RECORD

    cdef int _wants(self, const unsigned char *record, Py_ssize_t size, WantedQueue **queue) noexcept nogil:
        """Find the queue of an unchecked record; NULL when the record is not wanted, or the queue is past it."""
        cdef Py_ssize_t topic_at = topic_of(record, size)
        cdef int64_t number = get_i64(record + R_QUEUE_OFFSET)
        cdef int32_t place
        if topic_at < 0:
            return FOUND_BAD_SIZE
        place = self.queues.find(record + topic_at, record[topic_at - 1], get_i32(record + R_QUEUE_ID))
        queue[0] = NULL
        if place >= 0 and has_entry(record) and self.wanted[place].next <= number < self.wanted[place].stop:
            queue[0] = &self.wanted[place]
        return FOUND_RECORD

    # --- as a broker sends them --------------------------------------------------------------------------

    def add_pulled(self, body, Py_ssize_t at, bytes topic not None, int32_t queue_id, int64_t first, int64_t stop,
                   bint is_dense):
        cdef Py_buffer view
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            return self._add_pulled(<const unsigned char *>view.buf, view.len, at, topic, queue_id, first, stop, is_dense)
        finally:
            PyBuffer_Release(&view)

    cdef tuple _add_pulled(self, const unsigned char *records, Py_ssize_t end, Py_ssize_t at, bytes topic,
                           int32_t queue_id, int64_t first, int64_t stop, bint is_dense):
        cdef const unsigned char *name = <const unsigned char *>PyBytes_AS_STRING(topic)
        cdef Py_ssize_t name_size = PyBytes_GET_SIZE(topic)
        cdef Frame frame
        cdef int64_t offset
        cdef int found = FOUND_RECORD
        self._begin(at, end)
        with nogil:
            while at < end and found == FOUND_RECORD:
                frame.size = get_i32(records + at) if end - at >= RECORD_FIXED_SIZE else 0
                if not RECORD_FIXED_SIZE <= frame.size <= end - at:
                    found = FOUND_SHORT
                    break
                if self.columns.is_full(frame.size):
                    found = IS_FULL
                    break
                found = parse_sent(records + at, frame.size, &frame)
                if found == FOUND_RECORD and not is_utf8(records + at + frame.properties_at, frame.properties_size):
                    found = FOUND_BAD_SIZE  # properties become texts of Arrow
                if found != FOUND_RECORD:
                    break
                offset = get_i64(records + at + R_QUEUE_OFFSET)
                if (get_i32(records + at + R_QUEUE_ID) != queue_id or frame.topic_size != name_size
                        or memcmp(records + at + frame.topic_at, name, name_size) != 0):
                    found = IS_OTHER
                elif is_dense and first < offset < stop:
                    found = IS_GAP
                elif first <= offset < stop:
                    found = self._add(records + at, &frame)
                if found == FOUND_RECORD:
                    first = max(first, min(offset + 1, stop))
                    at += frame.size
        return (*self._ended(at, found), first)

    # --- both ------------------------------------------------------------------------------------------

    cdef int _add(self, const unsigned char *record, Frame *frame) noexcept nogil:
        """Add a row for a checked record, or for each message of a batch, if its tag is wanted."""
        if is_inner_batch(record):
            return self._add_batch(record, frame)
        return self._add_one(record, frame)

    cdef int _add_one(self, const unsigned char *record, Frame *frame) noexcept nogil:
        cdef Named named
        if self.looks_for_named:
            find_named(record + frame.properties_at, frame.properties_size, &named)
            if self.tags.count and not self._has_wanted_tag(&named):
                return FOUND_RECORD
        return self.columns.add(record, frame, &named)

    cdef int _add_batch(self, const unsigned char *record, Frame *frame) noexcept with gil:
        """Add a row for each message of a batch.

        When the columns are full before its end, the next call goes on there.
        """
        cdef ReceivedMessage message
        cdef int found
        try:
            if self.batch is None or self.batch_at != get_i64(record + R_COMMIT_LOG_OFFSET):
                message = received(PyBytes_FromStringAndSize(<char *>record, frame.size), 0, frame, None, 1, False)
                message.max_opened_body_bytes = self.columns.max_opened_body_bytes
                self.batch = inner_messages(message)
                self.batch_at = get_i64(record + R_COMMIT_LOG_OFFSET)
                self.batch_next = 0
            while self.batch_next < len(self.batch):
                message = self.batch[self.batch_next]
                found = IS_FULL if self.columns.is_full(message.frame.size) else self._add(message.at, &message.frame)
                if found != FOUND_RECORD:
                    return found
                self.batch_next += 1
            self.batch = None
            return FOUND_RECORD
        except MemoryError:
            return NO_MEMORY
        except Exception as error:
            if self.columns.null_unreadable and isinstance(error, BodyUnreadable):
                return self._add_one(record, frame)
            return self.columns._fail(record, frame, error)

    cdef bint _has_wanted_tag(self, const Named *named) noexcept nogil:
        cdef const unsigned char *at = self.tag_list
        while at < self.tag_list_end and named.tags != NULL:
            if get_i32(at) == named.tags_size and memcmp(at + 4, named.tags, named.tags_size) == 0:
                return True
            at += 4 + get_i32(at)
        return False

    cdef void _expect(self, _Range log, const unsigned char *entry) noexcept nogil:
        cdef int64_t at = get_i64(entry) - log.base
        cdef int64_t size = min(get_i32(entry + E_SIZE), <int32_t>MOST_EXPECTED)
        if 0 <= at <= log.view.len - size:
            expect_read(log.at(log.base + at), size)

    cdef int _begin(self, Py_ssize_t at, Py_ssize_t count) except -1:
        if not 0 <= at <= count:
            raise ValueError(f"there is no entry {at}, of {count}")
        return self.columns.begin()

    cdef tuple _ended(self, int64_t at, int found):
        if found == NO_MEMORY:
            raise MemoryError()
        if found == IS_UNREADABLE:
            raise self.columns.failure
        return at, found
