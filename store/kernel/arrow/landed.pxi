# --- landed records: which rows of a batch are in the log, and how the others get there -------------------------------

cdef struct LandedPart:
    uint64_t prefix                 # first half of the unique keys of the part
    int64_t rows
    int64_t found
    unsigned char *bits


@cython.final
cdef class Landed:
    """Which rows of a batch are in the log already, found by the unique keys of the records there."""

    cdef LandedPart *parts
    cdef int count
    cdef dict numbers

    def __cinit__(self, list parts not None):
        cdef int number
        self.numbers = {}
        self.parts = <LandedPart *>calloc(max(1, len(parts)), sizeof(LandedPart))
        if self.parts == NULL:
            raise MemoryError()
        for prefix, rows in sorted(parts):
            number = self.count
            self.parts[number].prefix = prefix
            self.parts[number].rows = rows
            self.parts[number].bits = <unsigned char *>calloc(1, <size_t>(self.parts[number].rows // 8 + 1))
            if self.parts[number].bits == NULL:
                raise MemoryError()
            self.numbers[prefix] = number
            self.count += 1
        if len(self.numbers) != self.count:
            raise ValueError("two parts have one prefix")

    def __dealloc__(self):
        cdef int number
        if self.parts != NULL:
            for number in range(self.count):
                free(self.parts[number].bits)
            free(self.parts)

    def __len__(self):
        return sum([self.parts[number].found for number in range(self.count)])

    def rows_of(self, uint64_t prefix):
        return self.parts[<int>self.numbers[prefix]].found

    def look(self, buffer, int64_t begin, int64_t stop):
        cdef _Range part = _Range(buffer, begin, begin, stop)
        cdef Frame frame
        cdef int64_t offset = begin
        with nogil:
            while offset < part.stop and parse(part.at(offset), part.left(offset), offset, &frame) == FOUND_RECORD:
                self.note(part.at(offset), &frame)
                offset += frame.size
        return offset

    cdef void note(self, const unsigned char *record, const Frame *frame) noexcept nogil:
        cdef const unsigned char *key
        cdef uint64_t prefix, row
        cdef bint is_hex = False
        cdef LandedPart *part
        cdef Py_ssize_t size = 0
        key = find_property(record + frame.properties_at, frame.properties_size, N_UNIQ_KEY, &size)
        if key == NULL or size != 32:
            return
        prefix = hex_value(key, &is_hex)
        part = self.part_of(prefix) if is_hex else NULL
        if part == NULL:
            return
        row = hex_value(key + 16, &is_hex)
        if is_hex and row < <uint64_t>part.rows and not part.bits[row >> 3] >> (row & 7) & 1:
            part.bits[row >> 3] |= <unsigned char>(1 << (row & 7))
            part.found += 1

    cdef LandedPart *part_of(self, uint64_t prefix) noexcept nogil:
        cdef int low = 0
        cdef int high = self.count
        cdef int middle
        while low < high:
            middle = (low + high) // 2
            if self.parts[middle].prefix < prefix:
                low = middle + 1
            else:
                high = middle
        return &self.parts[low] if low < self.count and self.parts[low].prefix == prefix else NULL


def append_run(Appender appender not None, content, Py_ssize_t position, uint64_t prefix, Landed landed=None):
    cdef Py_buffer view
    cdef Route route
    cdef _Staging staging
    cdef const unsigned char *run
    cdef const unsigned char *at
    cdef const unsigned char *end
    cdef unsigned char digits[16]
    cdef LandedPart *part = NULL
    cdef int number
    cdef int64_t appended = 0
    PyObject_GetBuffer(content, &view, PyBUF_SIMPLE)
    try:
        run = <const unsigned char *>view.buf + position
        if (position < 0 or view.len - position < RUN_HEADER_SIZE or get_i32(run) != RUN_MAGIC
                or not RUN_HEADER_SIZE + run[RUN_TOPIC_SIZE] <= get_i32(run + RUN_SIZE) <= view.len - position):
            raise ValueError(f"no run of staged records stands at byte {position} of {view.len}")
        at = run + RUN_HEADER_SIZE + run[RUN_TOPIC_SIZE]
        end = run + get_i32(run + RUN_SIZE)
        route = appender.routes.find(run[RUN_HEADER_SIZE:RUN_HEADER_SIZE + run[RUN_TOPIC_SIZE]].decode())
        number = route.number_of(get_i32(run + RUN_QUEUE_ID))
        if landed is not None:
            part = landed.part_of(prefix)
        put_hex(digits, prefix, 16)
        staging = appender.begin(MOST_CHUNK_RECORDS)
        while at < end:
            at = fill_chunk(appender.committer, staging, at, end, digits, part)
            if staging.section.plan.count:
                append_chunk(appender.committer, staging, route.slots[number])
                appended += staging.section.plan.count
        appender.spare = staging
        return position + get_i32(run + RUN_SIZE), appended
    finally:
        PyBuffer_Release(&view)


cdef int append_chunk(_Committer committer, _Staging staging, int slot) except -1:
    """Append, and try again when another thread has kept the mutex for too long: a batch is not given up for that."""
    cdef int left = MOST_TRIES
    while True:
        try:
            return committer.commit(staging, slot)
        except StoreBusy:
            left -= 1
            if left == 0:
                raise
            staging.section.now = wall_clock_ms()


cdef const unsigned char *fill_chunk(_Committer committer, _Staging staging, const unsigned char *at,
                                     const unsigned char *end, const unsigned char *digits,
                                     const LandedPart *part) except NULL:
    """Copy the next staged records that have not landed, and write their unique keys; return where the rest begins."""
    cdef Py_ssize_t most_bytes = min(<Py_ssize_t>MOST_CHUNK_BYTES, <Py_ssize_t>committer.log_file_bytes - BLANK_RECORD_SIZE)
    cdef int most_records = <int>min(<uint64_t>MOST_CHUNK_RECORDS, committer.entries_per_file)
    cdef unsigned char *record
    cdef int64_t row
    cdef int32_t size
    staging.begin(MOST_CHUNK_RECORDS)
    while at < end and staging.section.plan.count < most_records:
        size = get_i32(at + STAGED_PREFIX_SIZE) if end - at > STAGED_PREFIX_SIZE + RECORD_FIXED_SIZE else 0
        if size < RECORD_FIXED_SIZE + UNIQUE_PROPERTY_SIZE + CRC_PROPERTY_SIZE or size > end - at - STAGED_PREFIX_SIZE:
            raise ValueError("a run of staged records ends before its last record does")
        if <Py_ssize_t>size + BLANK_RECORD_SIZE > <Py_ssize_t>committer.log_file_bytes:
            raise BodyTooLarge(f"a record of {size} bytes; one commit log file holds {committer.log_file_bytes - BLANK_RECORD_SIZE}")
        row = get_i64(at + STAGED_ROW)
        if part == NULL or not 0 <= row < part.rows or not part.bits[row >> 3] >> (row & 7) & 1:
            if staging.section.plan.count and <Py_ssize_t>staging.section.plan.size + size > most_bytes:
                break
            record = staging.reserve(size)
            memcpy(record, at + STAGED_PREFIX_SIZE, size)
            memcpy(record + size - UNIQUE_VALUE_FROM_END, digits, 16)
            if get_i64(record + R_BORN_TIMESTAMP) == INT64_MIN:
                put_i64(record + R_BORN_TIMESTAMP, staging.section.now)
            staging.note(size, get_i64(at))
        at += STAGED_PREFIX_SIZE + size
    return at
