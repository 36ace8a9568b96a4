# --- matching: records beside what was derived from them, for those who verify a store ----------------------------------

cdef enum:
    ENTRIES_A_LOOK = 1 << 18      # of an index file: five megabytes, and then a look at the pages of this process


cdef struct QueueMatch:
    const unsigned char *entries  # some that were read
    int64_t first_entry           # of them
    int64_t room                  # how many they are
    int64_t lowest                # queue offset of a record, of all that were met
    int64_t end                   # behind the highest one
    int64_t matched_from          # from here to ``matched_to`` each queue offset has a record, in the order of the log,
    int64_t matched_to            # and its entry is right
    bint is_matching              # so far


@cython.final
cdef class Matcher:
    """Walks over records, and compares each with its consume queue entry. It reads bytes, and writes none."""

    cdef object entries_from
    cdef _QueueMap queues
    cdef QueueMatch *matches      # by the number of their queue
    cdef int32_t room             # matches that fit
    cdef dict read                # number of a queue -> the bytes that its entries point into

    def __cinit__(self, entries_from not None):
        self.entries_from = entries_from
        self.queues = _QueueMap.__new__(_QueueMap)
        self.read = {}

    def __dealloc__(self):
        free(self.matches)

    @property
    def numbers(self):
        return {self.queue(number): (self.matches[number].lowest, self.matches[number].end)
                for number in range(self.queues.count)}

    @property
    def matched(self):
        return {self.queue(number): (self.matches[number].matched_from, self.matches[number].matched_to)
                for number in range(self.queues.count)}

    cdef object queue(self, int32_t number):
        return MessageQueue(self.queues.topic_of(number), self.queues.keys[number].queue_id)

    def walk(self, buffer, int64_t base, int64_t stop):
        cdef _Range part = _Range(buffer, base, base, stop)
        cdef Frame frame
        cdef int64_t offset = base
        cdef int found = FOUND_RECORD
        while True:
            with nogil:
                offset, found = self.walk_on(part, offset, &frame)
            if found != NO_FILE:
                return offset, found
            self.read_entries(part.at(offset), &frame)

    cdef (int64_t, int) walk_on(self, _Range part, int64_t offset, Frame *frame) noexcept nogil:
        """Walk over valid records to the first that is not valid, or that needs entries which were not read."""
        cdef const unsigned char *record
        cdef int32_t queue
        cdef int found = FOUND_RECORD
        while offset < part.stop:
            record = part.at(offset)
            found = parse(record, part.left(offset), offset, frame)
            if found != FOUND_RECORD:
                break
            if has_entry(record):
                queue = self.queues.find(record + frame.topic_at, frame.topic_size, get_i32(record + R_QUEUE_ID))
                if queue < 0 or not self.compare(&self.matches[queue], record, frame, offset):
                    return offset, NO_FILE
            offset += frame.size
        return offset, found

    cdef bint compare(self, QueueMatch *match, const unsigned char *record, const Frame *frame, int64_t offset) noexcept nogil:
        """Compare a record with its entry; False if that was not read."""
        cdef int64_t number = get_i64(record + R_QUEUE_OFFSET)
        match.lowest = min(match.lowest, number)
        match.end = max(match.end, number + 1)
        if not match.is_matching:
            return True
        if number == match.matched_to:
            if not 0 <= number - match.first_entry < match.room:
                return False
            if is_entry_of(match.entries + (number - match.first_entry) * CONSUME_QUEUE_ENTRY_SIZE, record, frame, offset):
                match.matched_to = number + 1
                return True
        match.is_matching = False
        return True

    cdef int read_entries(self, const unsigned char *record, Frame *frame) except -1:
        """Read the entry of a record, and some behind it; without it the queue does not match any more."""
        cdef int32_t queue_id = get_i32(record + R_QUEUE_ID)
        cdef int64_t number = get_i64(record + R_QUEUE_OFFSET)
        cdef int32_t queue = self.queues.find(record + frame.topic_at, frame.topic_size, queue_id)
        cdef QueueMatch *match
        if queue < 0:
            queue = self.queues.add(record + frame.topic_at, frame.topic_size, queue_id)
            self.make_room(queue)
            match = &self.matches[queue]
            match.lowest, match.end, match.is_matching = number, number, True
            match.matched_from = match.matched_to = number
        match = &self.matches[queue]
        content = self.entries_from(self.queue(queue), number)
        if not isinstance(content, bytes):
            raise TypeError(f"the entries of a queue are bytes, not {content!r:.80}")
        self.read[queue] = content
        match.entries = <const unsigned char *>PyBytes_AS_STRING(content)
        match.first_entry, match.room = number, len(<bytes>content) // CONSUME_QUEUE_ENTRY_SIZE
        match.is_matching = match.room > 0
        return 0

    cdef int make_room(self, int32_t queue) except -1:
        cdef void *grown
        if queue >= self.room:
            grown = realloc(self.matches, 2 * (queue + 1) * sizeof(QueueMatch))
            if grown == NULL:
                raise MemoryError()
            self.matches = <QueueMatch *>grown
            memset(self.matches + self.room, 0, (2 * (queue + 1) - self.room) * sizeof(QueueMatch))
            self.room = 2 * (queue + 1)
        return 0


cdef int check_index(Mapping index, int32_t slots, int32_t entries, int32_t first, int32_t stop, int32_t most) except -1:
    if slots < 1 or entries < 1 or INDEX_HEADER_SIZE + 4 * <int64_t>slots + INDEX_ENTRY_SIZE * <int64_t>entries > index.size:
        raise ValueError(f"{slots} slots and {entries} entries do not fit into {index.size} bytes")
    if not 0 <= first <= stop <= most:
        raise ValueError(f"{first} to {stop} are not among {most}")
    return 0


def slots_right_to(Mapping index not None, int32_t slots, int32_t entries, int32_t slot):
    cdef const unsigned char *at = index.address + INDEX_HEADER_SIZE
    cdef int32_t number
    cdef int32_t highest = 0
    check_index(index, slots, entries, slot, slots, slots)
    with nogil:
        while slot < slots:
            number = get_i32(at + 4 * <Py_ssize_t>slot)
            if number > highest:  # another process may have added entries since the header was read
                keep_program_order()
                highest = max(1, get_i32(index.address + I_NEXT_NUMBER))
            if not 0 <= number <= highest:
                break
            slot += 1
    use(index, 4 * <uint64_t>slots)
    return slot


def chains_right_to(Mapping index not None, int32_t slots, int32_t entries, int32_t number, int32_t stop):
    cdef const unsigned char *at = index.address + INDEX_HEADER_SIZE + 4 * <Py_ssize_t>slots + X_PREVIOUS
    cdef int32_t until = number
    check_index(index, slots, entries, number, stop, entries)
    while number == until < stop:
        until = min(stop, number + ENTRIES_A_LOOK)
        with nogil:
            while number < until and 0 <= get_i32(at + INDEX_ENTRY_SIZE * <Py_ssize_t>number) < number:
                number += 1
        use(index, INDEX_ENTRY_SIZE * ENTRIES_A_LOOK)
    return number


def keys_right_to(buffer, int64_t base, int64_t begin, Mapping index not None, int32_t slots, int32_t entries,
                  int32_t number, int32_t stop):
    cdef _Range part = _Range(buffer, base, base, base + len(buffer))
    cdef const unsigned char *at = index.address + INDEX_HEADER_SIZE + 4 * <Py_ssize_t>slots
    cdef const unsigned char *entry
    cdef int64_t offset
    cdef int64_t parsed = -1
    cdef int32_t first = number
    cdef Frame frame
    check_index(index, slots, entries, number, stop, entries)
    with nogil:
        while number < stop:
            entry = at + INDEX_ENTRY_SIZE * <Py_ssize_t>number
            offset = get_i64(entry + X_COMMIT_LOG_OFFSET)
            if offset >= begin:
                if not base <= offset < part.stop:
                    break
                if offset != parsed:
                    if parse(part.at(offset), part.left(offset), offset, &frame) != FOUND_RECORD:
                        break
                    parsed = offset
                if not has_key(part.at(offset), &frame, get_i32(entry)):
                    break
            number += 1
    use(index, INDEX_ENTRY_SIZE * <uint64_t>(number - first))
    return number


cdef bint has_key(const unsigned char *record, const Frame *frame, int32_t hash) noexcept nogil:
    """Whether a record has a key of a hash."""
    cdef Keys keys
    find_keys(record, frame, &keys)
    while next_key(&keys):
        if index_hash(record + frame.topic_at, frame.topic_size, keys.at, keys.size) == hash:
            return True
    return False
