# --- dispatch --------------------------------------------------------------------------------------------------
# What is derived from the records of one commit log file: consume queue entries, and index entries.

cdef enum:
    RECENT = 64
    NO_FILE = -1                  # beside the numbers of FOUND: the consume queue file of a record is not known yet
    TRANSACTION_BITS = 0xC
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_ROLLBACK = 0xC
    # index file header
    I_BEGIN_TIMESTAMP = 0
    I_END_TIMESTAMP = 8
    I_BEGIN_OFFSET = 16
    I_END_OFFSET = 24
    I_SLOTS_USED = 32
    I_NEXT_NUMBER = 36
    INDEX_HEADER_SIZE = 40
    # index entry
    X_COMMIT_LOG_OFFSET = 4
    X_SECONDS = 12
    X_PREVIOUS = 16
    INDEX_ENTRY_SIZE = 20

LAYOUT.update({
    "index.begin_timestamp": I_BEGIN_TIMESTAMP, "index.end_timestamp": I_END_TIMESTAMP,
    "index.begin_offset": I_BEGIN_OFFSET, "index.end_offset": I_END_OFFSET, "index.slots_used": I_SLOTS_USED,
    "index.next_number": I_NEXT_NUMBER, "index.size_of": INDEX_HEADER_SIZE,
    "index_entry.commit_log_offset": X_COMMIT_LOG_OFFSET, "index_entry.seconds": X_SECONDS,
    "index_entry.previous": X_PREVIOUS, "index_entry.size_of": INDEX_ENTRY_SIZE,
})


@cython.final
cdef class _Range:
    """A part of one commit log file: ``buffer`` holds the file's bytes from its first one on."""

    cdef Py_buffer view
    cdef int64_t base
    cdef int64_t stop

    def __cinit__(self, buffer, int64_t base, int64_t start, int64_t stop):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        if not base <= start <= base + self.view.len:
            raise ValueError(f"offset {start} is not inside the {self.view.len} bytes from {base} on")
        self.base = base
        self.stop = min(stop, base + self.view.len)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    cdef const unsigned char *at(self, int64_t offset) noexcept nogil:
        return <const unsigned char *>self.view.buf + (offset - self.base)

    cdef Py_ssize_t left(self, int64_t offset) noexcept nogil:
        return self.view.len - (offset - self.base)


cdef struct QueueTarget:
    unsigned char *entries        # the consume queue file that takes the next entries, or NULL
    int64_t first_entry           # of that file
    int64_t end                   # queue offset behind the last record dispatched
    uint32_t hash
    int32_t queue_id
    int topic_size
    char topic[128]


cdef bint has_entry(const unsigned char *record) noexcept nogil:
    """Whether a consume queue entry belongs to a record: none to one of a prepared or rolled back transaction."""
    cdef int32_t transaction = get_i32(record + R_SYS_FLAG) & TRANSACTION_BITS
    return transaction != TRANSACTION_PREPARED and transaction != TRANSACTION_ROLLBACK


cdef uint32_t hash_of_queue(const unsigned char *topic, Py_ssize_t size, int32_t queue_id) noexcept nogil:
    cdef uint32_t value = <uint32_t>2166136261 ^ <uint32_t>queue_id  # FNV-1a
    cdef Py_ssize_t number
    for number in range(size):
        value = (value ^ topic[number]) * 16777619
    return value


cdef bint has_our_crc(const unsigned char *record, const Frame *frame) noexcept nogil:
    """Tell whether a valid record has the CRC over all of it, its queue offset too."""
    return (frame.properties_size >= CRC_PROPERTY_SIZE
            and memcmp(record + frame.size - CRC_PROPERTY_SIZE, b"__CRC32#\x01", 9) == 0)


cdef bint is_of(const QueueTarget *target, const unsigned char *topic, Py_ssize_t size, int32_t queue_id) noexcept nogil:
    return target.queue_id == queue_id and target.topic_size == size and memcmp(target.topic, topic, size) == 0


@cython.final
cdef class Dispatcher:
    """Checks records and their consume queue entries; writes those entries that are not right already."""

    cdef object queue_file
    cdef int64_t entries_per_file
    cdef QueueTarget *targets     # hash table with open addressing
    cdef QueueTarget *recent[RECENT]  # found last, by queue id: nearly always the same topic's
    cdef uint32_t room            # a power of two, at least twice the targets in it
    cdef uint32_t count
    cdef dict mappings            # position in the table -> the mapping that its entries point into
    cdef readonly int64_t records
    cdef readonly int64_t entries_written
    cdef readonly list doubtful   # (begin, end) of records whose queue offset was not believed
    cdef readonly int64_t right_to  # below it every entry of a checked record is right
    cdef bint all_right           # so far

    def __cinit__(self, queue_file, int64_t entries_per_file):
        self.queue_file = queue_file
        self.all_right = queue_file is not None
        self.entries_per_file = entries_per_file
        self.mappings = {}
        self.doubtful = []
        self.room = 64
        self.targets = <QueueTarget *>calloc(self.room, sizeof(QueueTarget))
        if self.targets == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.targets)

    @property
    def ends(self):
        cdef uint32_t number
        cdef QueueTarget *target
        ends = {}
        for number in range(self.room):
            target = &self.targets[number]
            if target.end:
                ends[target.topic[:target.topic_size].decode(), target.queue_id] = target.end
        return ends

    def check(self, buffer, int64_t base, int64_t start, int64_t stop):
        cdef _Range part = _Range(buffer, base, start, stop)
        cdef Frame frame
        cdef int64_t offset = start
        cdef int found = IS_RECORD
        while True:
            with nogil:
                offset, found = self.check_on(part, offset, &frame)
            if found != NO_FILE:
                break
            if self.open_file(self.target_of(part.at(offset), &frame), part.at(offset), &frame, offset) >= 0:
                self.all_right = False
        return offset, found

    cdef (int64_t, int) check_on(self, _Range part, int64_t offset, Frame *frame) noexcept nogil:
        """Walk over valid records until one ends the walk; stop comparing entries at the first that is not right."""
        cdef const unsigned char *record
        cdef QueueTarget *target
        cdef int found = IS_RECORD
        cdef int64_t number
        while offset < part.stop:
            record = part.at(offset)
            found = parse(record, part.left(offset), offset, frame)
            if found != IS_RECORD:
                break
            if self.all_right and has_entry(record):
                target = self.find(record, frame)
                number = get_i64(record + R_QUEUE_OFFSET)
                if not self.is_open(target, number):
                    found = NO_FILE
                    break
                if self.is_right(target, number, record, frame, offset):
                    target.end = max(target.end, number + 1)
                else:
                    self.all_right = False
                    self.right_to = offset
            offset += frame.size
        if self.all_right:
            self.right_to = offset
        return offset, found

    cdef bint is_open(self, const QueueTarget *target, int64_t number) noexcept nogil:
        return target != NULL and target.entries != NULL and 0 <= number - target.first_entry < self.entries_per_file

    cdef bint is_right(self, const QueueTarget *target, int64_t number, const unsigned char *record, const Frame *frame,
                       int64_t offset) noexcept nogil:
        cdef const unsigned char *entry = target.entries + (number - target.first_entry) * ENTRY_SIZE
        return (get_i64(entry) == offset and get_i32(entry + E_SIZE) == <int32_t>frame.size
                and get_i64(entry + E_TAGS_CODE) == tags_code_of(record, frame))

    def dispatch(self, buffer, int64_t base, int64_t start, int64_t stop):
        cdef _Range part = _Range(buffer, base, start, stop)
        cdef Frame frame
        cdef int64_t offset = start
        cdef int64_t expected
        cdef QueueTarget *target
        while offset < part.stop:
            with nogil:
                offset = self.write_on(part, offset, &frame)
            if offset >= part.stop or frame.size == 0:
                break
            target = self.target_of(part.at(offset), &frame)  # a queue, or a file of it, that is not known yet
            expected = self.open_file(target, part.at(offset), &frame, offset)
            if expected >= 0:
                target.end = expected + 1
                self.doubtful.append((offset, offset + frame.size))
                self.records += 1
                offset += frame.size
        return offset

    cdef int64_t write_on(self, _Range part, int64_t offset, Frame *frame) noexcept nogil:
        """Write entries until a file is missing; ``frame.size`` is 0 when no record stands at the returned offset."""
        cdef const unsigned char *record
        cdef QueueTarget *target
        cdef int64_t number
        frame.size = 0
        while offset < part.stop:
            record = part.at(offset)
            if frame_of(record, part.left(offset), offset, frame) != IS_RECORD:
                frame.size = 0
                return offset
            if has_entry(record):
                target = self.find(record, frame)
                number = get_i64(record + R_QUEUE_OFFSET)
                if not self.is_open(target, number):
                    return offset
                if number != target.end and not has_our_crc(record, frame):
                    return offset
                self.write(target.entries + (number - target.first_entry) * ENTRY_SIZE, record, frame, offset)
                if number + 1 > target.end:
                    target.end = number + 1
            self.records += 1
            offset += frame.size
        return offset

    cdef void write(self, unsigned char *at, const unsigned char *record, Frame *frame, int64_t offset) noexcept nogil:
        cdef unsigned char entry[ENTRY_SIZE]
        put_i64(entry, offset)
        put_i32(entry + E_SIZE, <int32_t>frame.size)
        put_i64(entry + E_TAGS_CODE, tags_code_of(record, frame))
        if memcmp(at, entry, ENTRY_SIZE) != 0:
            memcpy(at, entry, ENTRY_SIZE)
            self.entries_written += 1

    cdef QueueTarget *find(self, const unsigned char *record, Frame *frame) noexcept nogil:
        cdef const unsigned char *topic = record + frame.topic_at
        cdef int32_t queue_id = get_i32(record + R_QUEUE_ID)
        cdef QueueTarget **recent = &self.recent[queue_id & (RECENT - 1)]
        cdef uint32_t number
        if recent[0] != NULL and is_of(recent[0], topic, frame.topic_size, queue_id):
            return recent[0]
        number = hash_of_queue(topic, frame.topic_size, queue_id) & (self.room - 1)
        while self.targets[number].topic_size:
            if is_of(&self.targets[number], topic, frame.topic_size, queue_id):
                recent[0] = &self.targets[number]
                return recent[0]
            number = (number + 1) & (self.room - 1)
        return NULL

    cdef QueueTarget *target_of(self, const unsigned char *record, Frame *frame) except NULL:
        cdef QueueTarget *target = self.find(record, frame)
        if target != NULL:
            return target
        if 2 * (self.count + 1) > self.room:
            self.grow()
        target = self.free_place(hash_of_queue(record + frame.topic_at, frame.topic_size, get_i32(record + R_QUEUE_ID)))
        target.hash = hash_of_queue(record + frame.topic_at, frame.topic_size, get_i32(record + R_QUEUE_ID))
        target.queue_id = get_i32(record + R_QUEUE_ID)
        target.topic_size = <int>frame.topic_size
        memcpy(target.topic, record + frame.topic_at, frame.topic_size)
        self.count += 1
        return target

    cdef QueueTarget *free_place(self, uint32_t hash) noexcept:
        cdef uint32_t number = hash & (self.room - 1)
        while self.targets[number].topic_size:
            number = (number + 1) & (self.room - 1)
        return &self.targets[number]

    cdef int grow(self) except -1:
        cdef QueueTarget *old = self.targets
        cdef uint32_t old_room = self.room
        cdef uint32_t number
        cdef QueueTarget *larger = <QueueTarget *>calloc(2 * old_room, sizeof(QueueTarget))
        if larger == NULL:
            raise MemoryError
        mappings = {}
        memset(self.recent, 0, sizeof(self.recent))
        self.targets = larger
        self.room = 2 * old_room
        for number in range(old_room):
            if old[number].topic_size:
                target = self.free_place(old[number].hash)
                target[0] = old[number]
                mappings[target - self.targets] = self.mappings.get(number)
        self.mappings = mappings
        free(old)
        return 0

    cdef int64_t open_file(self, QueueTarget *target, const unsigned char *record, Frame *frame, int64_t offset) except -2:
        """-1, or the queue offset that is believed in place of the record's."""
        cdef Mapping mapping
        cdef int64_t queue_offset = get_i64(record + R_QUEUE_OFFSET)
        cdef bint is_checked = has_our_crc(record, frame)
        found = self.queue_file(
            target.topic[:target.topic_size].decode(), target.queue_id, queue_offset, offset, target.end, is_checked)
        if isinstance(found, int):
            if found < 0:
                raise ValueError(f"queue offset {found} cannot be believed in place of {queue_offset}")
            return found
        mapping, first_entry = found
        if not 0 <= queue_offset - first_entry < self.entries_per_file or mapping.size < self.entries_per_file * ENTRY_SIZE:
            raise ValueError(f"a file of {mapping.size} bytes from entry {first_entry} on does not hold {queue_offset}")
        self.mappings[target - self.targets] = mapping
        target.entries = mapping.address
        target.first_entry = first_entry
        target.end = max(target.end, queue_offset) if is_checked else queue_offset
        return -1


# --- index -----------------------------------------------------------------------------------------------------

cdef struct IndexFile:
    unsigned char *at
    int32_t slots
    int32_t entries


cdef int32_t index_hash(const unsigned char *topic, Py_ssize_t topic_size, const unsigned char *key,
                        Py_ssize_t key_size) noexcept nogil:
    """Hash of ``topic#key``, not negative (IndexFile.indexKeyHashMethod)."""
    cdef uint32_t value = hash_utf8(topic, topic_size)
    value = hash_utf8(key, key_size, 31 * value + 35)
    if value == <uint32_t>0x80000000:
        return 0
    return -<int32_t>value if <int32_t>value < 0 else <int32_t>value


def index_key_hash(str topic not None, str key not None):
    cdef Py_ssize_t topic_size = 0
    cdef Py_ssize_t key_size = 0
    cdef const char *topic_at = PyUnicode_AsUTF8AndSize(topic, &topic_size)
    cdef const char *key_at = PyUnicode_AsUTF8AndSize(key, &key_size)
    return index_hash(<const unsigned char *>topic_at, topic_size, <const unsigned char *>key_at, key_size)


cdef bint put_key(IndexFile *index, int32_t hash, int64_t offset, int64_t timestamp) noexcept nogil:
    """Add an entry (IndexFile.putKey); False when the file is full.

    The entry is whole before its slot points to it, and counts last. Whoever comes after a death in between finds the
    slot pointing to the number that is next: the chain then goes on behind it.
    """
    cdef unsigned char *header = index.at
    cdef int32_t number = get_i32(header + I_NEXT_NUMBER)
    cdef unsigned char *slot = header + INDEX_HEADER_SIZE + 4 * <Py_ssize_t>(hash % index.slots)
    cdef unsigned char *entries = header + INDEX_HEADER_SIZE + 4 * <Py_ssize_t>index.slots
    cdef unsigned char *entry
    cdef int64_t begin = get_i64(header + I_BEGIN_TIMESTAMP)
    cdef int64_t seconds
    cdef int32_t previous = get_i32(slot)
    if number >= index.entries:
        return False
    entry = entries + INDEX_ENTRY_SIZE * <Py_ssize_t>number
    if previous == number:
        previous = get_i32(entry + X_PREVIOUS)
    if previous <= 0 or previous >= number:
        previous = 0
    seconds = (timestamp - begin) // 1000 if begin > 0 else 0
    put_i32(entry, hash)
    put_i64(entry + X_COMMIT_LOG_OFFSET, offset)
    put_i32(entry + X_SECONDS, <int32_t>(0 if seconds < 0 else 0x7FFFFFFF if seconds > 0x7FFFFFFF else seconds))
    put_i32(entry + X_PREVIOUS, previous)
    keep_program_order()
    put_i32(slot, number)
    keep_program_order()
    reach_point(AT_INDEX_SLOT_WRITTEN)
    if number <= 1:
        put_i64(header + I_BEGIN_OFFSET, offset)
        put_i64(header + I_BEGIN_TIMESTAMP, timestamp)
    if previous == 0:
        put_i32(header + I_SLOTS_USED, get_i32(header + I_SLOTS_USED) + 1)
    put_i32(header + I_NEXT_NUMBER, number + 1)
    put_i64(header + I_END_OFFSET, offset)
    put_i64(header + I_END_TIMESTAMP, timestamp)
    return True


cdef bint put_keys(IndexFile *index, const unsigned char *record, Frame *frame, int64_t offset, int *done) noexcept nogil:
    """Add a record's unique key and its keys, but the first ``done``, which counts up; False when the file is full.

    IndexService.buildIndex.
    """
    cdef const unsigned char *topic = record + frame.topic_at
    cdef const unsigned char *properties = record + frame.properties_at
    cdef int64_t timestamp = store_timestamp_of(record)
    cdef Py_ssize_t size = 0
    cdef int number = 0
    cdef const unsigned char *key = find_property(properties, frame.properties_size, b"UNIQ_KEY", 8, &size)
    cdef const unsigned char *end
    cdef const unsigned char *stop
    cdef unsigned char unique[32]
    cdef int unique_count
    if key != NULL and size > 0:
        if done[0] == 0:
            if not put_key(index, index_hash(topic, frame.topic_size, key, size), offset, timestamp):
                return False
            done[0] = 1
        number = 1
        if size == 32 and is_inner_batch(record):
            memcpy(unique, key, 32)
            unique_count = count_unique_keys(record, frame)
            while number < unique_count and next_unique_key(unique):
                if number >= done[0]:
                    if not put_key(index, index_hash(topic, frame.topic_size, unique, 32), offset, timestamp):
                        return False
                    done[0] = number + 1
                number += 1
    key = find_property(properties, frame.properties_size, b"KEYS", 4, &size)
    if key == NULL:
        return True
    end = key + size
    while key < end:
        stop = <const unsigned char *>memchr(key, 32, end - key)
        if stop == NULL:
            stop = end
        if stop > key:
            if number >= done[0]:
                if not put_key(index, index_hash(topic, frame.topic_size, key, stop - key), offset, timestamp):
                    return False
                done[0] = number + 1
            number += 1
        key = stop + 1
    return True


def index_records(buffer, int64_t base, int64_t start, int64_t stop, Mapping index not None, int32_t slots,
                  int32_t entries, int done=0):
    cdef _Range part = _Range(buffer, base, start, stop)
    cdef IndexFile target
    cdef Frame frame
    cdef int64_t offset = start
    cdef bint is_full = False
    if slots < 1 or entries < 1 or INDEX_HEADER_SIZE + 4 * <int64_t>slots + INDEX_ENTRY_SIZE * <int64_t>entries > index.size:
        raise ValueError(f"{slots} slots and {entries} entries do not fit into {index.size} bytes")
    if get_i32(index.address + I_NEXT_NUMBER) < 1:
        raise ValueError("the index file has no header")
    target.at = index.address
    target.slots = slots
    target.entries = entries
    with nogil:
        while offset < part.stop:
            if frame_of(part.at(offset), part.left(offset), offset, &frame) != IS_RECORD:
                break
            if (get_i32(part.at(offset) + R_SYS_FLAG) & TRANSACTION_BITS) != TRANSACTION_ROLLBACK:
                if not put_keys(&target, part.at(offset), &frame, offset, &done):
                    is_full = True
                    break
            done = 0
            offset += frame.size
    return offset, done, is_full
