# --- entries: the consume queue entries of the records of one commit log file -----------------------------------------

cdef enum:
    NO_FILE = -1                  # beside the numbers of FOUND: the consume queue file of a record is not open yet
    TRANSACTION_BITS = 0xC
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_ROLLBACK = 0xC


cdef struct QueueTarget:
    unsigned char *entries        # the consume queue file that takes the next entries, or NULL
    int64_t first_entry           # of that file
    int64_t room                  # entries of it that may be looked at, or written
    int64_t end                   # queue offset behind the last record dispatched


cdef bint has_entry(const unsigned char *record) noexcept nogil:
    """Whether a record has a consume queue entry. A prepared or rolled back message of a transaction has none."""
    cdef int32_t transaction = get_i32(record + R_SYS_FLAG) & TRANSACTION_BITS
    return transaction != TRANSACTION_PREPARED and transaction != TRANSACTION_ROLLBACK


cdef bint is_entry_of(const unsigned char *entry, const unsigned char *record, const Frame *frame, int64_t offset) noexcept nogil:
    """Whether an entry is right for a record that stands at ``offset``."""
    return (get_i64(entry) == offset and get_i32(entry + E_SIZE) == <int32_t>frame.size
            and get_i64(entry + E_TAGS_CODE) == tags_code_of(record, frame))


@cython.final
cdef class Dispatcher:
    """Checks records and their consume queue entries, and writes the entries that are not right."""

    cdef object queue_file
    cdef int64_t entries_per_file
    cdef _QueueMap queues
    cdef QueueTarget *targets     # by the number of their queue
    cdef int32_t room             # targets that fit
    cdef dict mappings            # number of a queue -> the mapping that its entries point into
    cdef readonly int64_t records
    cdef readonly int64_t entries_written
    cdef readonly list doubtful   # (begin, end) of records whose queue offset was not believed
    cdef readonly int64_t right_to  # every checked record below it has a right entry
    cdef bint all_right           # so far
    cdef uint64_t seen            # of ``unmapped``: at another count pages of the mappings were let go

    def __cinit__(self, queue_file, int64_t entries_per_file):
        self.queue_file = queue_file
        self.all_right = queue_file is not None
        self.entries_per_file = entries_per_file
        self.queues = _QueueMap.__new__(_QueueMap)
        self.mappings = {}
        self.doubtful = []

    def __dealloc__(self):
        free(self.targets)

    @property
    def ends(self):
        return {(self.queues.topic_of(number), self.queues.keys[number].queue_id): self.targets[number].end
                for number in range(self.queues.count) if self.targets[number].end}

    def check(self, buffer, int64_t base, int64_t start, int64_t stop):
        cdef _Range part = _Range(buffer, base, start, stop)
        cdef Frame frame
        cdef int64_t offset = start
        cdef int found = FOUND_RECORD
        self.use_files(max(0, part.stop - start))
        while True:
            with nogil:
                offset, found = self.check_on(part, offset, &frame)
            if found != NO_FILE:
                break
            if self.open_file(self.target_of(part.at(offset), &frame), part.at(offset), &frame, offset, False) >= 0:
                self.all_right = False
        return offset, found

    cdef (int64_t, int) check_on(self, _Range part, int64_t offset, Frame *frame) noexcept nogil:
        """Walk over valid records to the first that is not valid; compare entries up to the first that is not right."""
        cdef const unsigned char *record
        cdef QueueTarget *target
        cdef int found = FOUND_RECORD
        cdef int64_t number
        while offset < part.stop:
            record = part.at(offset)
            found = parse(record, part.left(offset), offset, frame)
            if found != FOUND_RECORD:
                break
            if self.all_right and has_entry(record):
                target = self.find(record, frame)
                number = get_i64(record + R_QUEUE_OFFSET)
                if not self.is_open(target, number):
                    found = NO_FILE
                    break
                if is_entry_of(target.entries + (number - target.first_entry) * CONSUME_QUEUE_ENTRY_SIZE, record, frame, offset):
                    target.end = max(target.end, number + 1)
                else:
                    self.all_right = False
                    self.right_to = offset
            offset += frame.size
        if self.all_right:
            self.right_to = offset
        return offset, found

    cdef int use_files(self, uint64_t size) except -1:
        """Count the pages that the entries of ``size`` bytes of records can touch, in files that are open."""
        cdef Mapping mapping = None
        if self.seen != unmapped:
            self.seen = unmapped
            for mapping in self.mappings.values():
                use(mapping, 0)
        return 0 if mapping is None else use(mapping, size)

    cdef bint is_open(self, const QueueTarget *target, int64_t number) noexcept nogil:
        return target != NULL and target.entries != NULL and 0 <= number - target.first_entry < target.room

    def dispatch(self, buffer, int64_t base, int64_t start, int64_t stop):
        cdef _Range part = _Range(buffer, base, start, stop)
        cdef Frame frame
        cdef int64_t offset = start
        cdef int64_t expected
        cdef QueueTarget *target
        self.use_files(max(0, part.stop - start))
        while offset < part.stop:
            with nogil:
                offset = self.write_on(part, offset, &frame)
            if offset >= part.stop or frame.size == 0:
                break
            target = self.target_of(part.at(offset), &frame)
            expected = self.open_file(target, part.at(offset), &frame, offset, True)
            if expected >= 0:
                target.end = expected + 1
                self.doubtful.append((offset, offset + frame.size))
                self.records += 1
                offset += frame.size
        return offset

    cdef int64_t write_on(self, _Range part, int64_t offset, Frame *frame) noexcept nogil:
        """Write entries until a file is not open; ``frame.size`` is 0 when no record stands at the returned offset."""
        cdef const unsigned char *record
        cdef QueueTarget *target
        cdef int64_t number
        frame.size = 0
        while offset < part.stop:
            record = part.at(offset)
            if frame_of(record, part.left(offset), offset, frame) != FOUND_RECORD:
                frame.size = 0
                return offset
            if has_entry(record):
                target = self.find(record, frame)
                number = get_i64(record + R_QUEUE_OFFSET)
                if not self.is_open(target, number):
                    return offset
                if number != target.end and not has_our_crc(record, frame):
                    return offset
                self.write(target.entries + (number - target.first_entry) * CONSUME_QUEUE_ENTRY_SIZE, record, frame, offset)
                if number + 1 > target.end:
                    target.end = number + 1
            self.records += 1
            offset += frame.size
        return offset

    cdef void write(self, unsigned char *at, const unsigned char *record, Frame *frame, int64_t offset) noexcept nogil:
        cdef unsigned char entry[CONSUME_QUEUE_ENTRY_SIZE]
        put_i64(entry, offset)
        put_i32(entry + E_SIZE, <int32_t>frame.size)
        put_i64(entry + E_TAGS_CODE, tags_code_of(record, frame))
        if memcmp(at, entry, CONSUME_QUEUE_ENTRY_SIZE) != 0:
            memcpy(at, entry, CONSUME_QUEUE_ENTRY_SIZE)
            self.entries_written += 1

    cdef QueueTarget *find(self, const unsigned char *record, Frame *frame) noexcept nogil:
        """The target of a record; NULL when its queue was not met before."""
        cdef int32_t number = self.queues.find(record + frame.topic_at, frame.topic_size, get_i32(record + R_QUEUE_ID))
        return NULL if number < 0 else &self.targets[number]

    cdef QueueTarget *target_of(self, const unsigned char *record, Frame *frame) except NULL:
        """The target of a record, made when its queue was not met before."""
        cdef int32_t number = self.queues.add(record + frame.topic_at, frame.topic_size, get_i32(record + R_QUEUE_ID))
        cdef void *grown
        if number >= self.room:
            grown = realloc(self.targets, 2 * (number + 1) * sizeof(QueueTarget))
            if grown == NULL:
                raise MemoryError()
            self.targets = <QueueTarget *>grown
            memset(self.targets + self.room, 0, (2 * (number + 1) - self.room) * sizeof(QueueTarget))
            self.room = 2 * (number + 1)
        return &self.targets[number]

    cdef int64_t open_file(self, QueueTarget *target, const unsigned char *record, Frame *frame, int64_t offset,
                           bint writes) except -2:
        """Open the file that takes the entry of a record.

        Returns -1, or the queue offset to believe instead of its own.
        """
        cdef int32_t number = <int32_t>(target - self.targets)
        cdef Mapping mapping
        cdef int64_t queue_offset = get_i64(record + R_QUEUE_OFFSET)
        cdef bint is_checked = has_our_crc(record, frame)
        found = self.queue_file(self.queues.topic_of(number), self.queues.keys[number].queue_id, queue_offset, offset,
                                target.end, is_checked)
        if isinstance(found, int):
            if found < 0:
                raise ValueError(f"queue offset {found} cannot be believed in place of {queue_offset}")
            return found
        mapping, first_entry = found
        target.room = min(self.entries_per_file, <int64_t>mapping.reserved // CONSUME_QUEUE_ENTRY_SIZE) if writes else self.entries_per_file
        if not 0 <= queue_offset - first_entry < target.room or mapping.size < self.entries_per_file * CONSUME_QUEUE_ENTRY_SIZE:
            raise ValueError(f"a file of {mapping.size} bytes from entry {first_entry} on does not hold {queue_offset}")
        self.mappings[number] = mapping
        use(mapping, mapping.size)
        target.entries = mapping.address
        target.first_entry = first_entry
        target.end = max(target.end, queue_offset) if is_checked else queue_offset
        return -1
