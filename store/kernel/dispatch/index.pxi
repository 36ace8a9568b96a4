# --- the index: records by their keys ---------------------------------------------------------------------------------

cdef enum:
    FOUND_AT_ONCE = 64


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

    The entry is whole before its slot points to it, and the count grows last. A death in between leaves a slot that points
    to the next number: the next process to add an entry then follows the chain behind it.
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


cdef int read_whole(int fd, unsigned char *to, size_t size, int64_t at) noexcept nogil:
    """Read bytes of a file that has them. Returns an errno."""
    cdef ssize_t count = c_pread(fd, to, size, at)
    while count < 0 and errno == EINTR:
        count = c_pread(fd, to, size, at)
    return errno if count < 0 else EIO if <size_t>count < size else 0


def find_in_index(int fd, int32_t slots, int32_t entries, int32_t key_hash, int64_t begin_ms, int64_t end_ms,
                  int32_t after=0):
    cdef int64_t found[FOUND_AT_ONCE]
    cdef int count = 0
    cdef unsigned char header[INDEX_HEADER_SIZE]
    cdef unsigned char entry[INDEX_ENTRY_SIZE]
    cdef int64_t slots_at = INDEX_HEADER_SIZE
    cdef int64_t entries_at = slots_at + 4 * <int64_t>slots
    cdef int64_t end, stored
    cdef uint64_t begin
    cdef int32_t number
    cdef int32_t limit = after if after else entries
    cdef int failure
    if slots < 1 or key_hash < 0 or not 0 <= after < entries:
        raise ValueError(f"{slots} slots, {entries} entries, hash {key_hash} or entry {after} cannot be")
    with nogil:
        failure = read_whole(fd, header, sizeof(header), 0)
        if after:
            failure = failure or read_whole(fd, entry, sizeof(entry), entries_at + INDEX_ENTRY_SIZE * <int64_t>after)
            number = get_i32(entry + X_PREVIOUS)
        else:
            failure = failure or read_whole(fd, entry, 4, slots_at + 4 * <int64_t>(key_hash % slots))
            number = get_i32(entry)
        begin = <uint64_t>get_i64(header + I_BEGIN_TIMESTAMP)
        end = max(<int64_t>0, get_i64(header + I_END_TIMESTAMP))
        if <int64_t>begin > end_ms or end < begin_ms:
            number = 0
        while failure == 0 and 0 < number < limit and count < FOUND_AT_ONCE:  # numbers fall along a chain: a damaged one ends
            failure = read_whole(fd, entry, sizeof(entry), entries_at + INDEX_ENTRY_SIZE * <int64_t>number)
            stored = <int64_t>(begin + <uint64_t>(<int64_t>get_i32(entry + X_SECONDS) * 1000))
            # The first entry of a successor counts from the end of the file before.
            if failure == 0 and get_i32(entry) == key_hash and (number == 1 or begin_ms <= stored <= end_ms):
                found[count] = get_i64(entry + X_COMMIT_LOG_OFFSET)
                count += 1
            limit = number
            number = get_i32(entry + X_PREVIOUS)
    if failure:
        raise OSError(failure, os.strerror(failure))
    return [found[place] for place in range(count)], limit if count == FOUND_AT_ONCE else 0


cdef struct Keys:
    const unsigned char *at           # the present key of a record
    Py_ssize_t size
    const unsigned char *first        # its unique key, until that was the present one
    Py_ssize_t first_size
    int unique_left                   # unique keys that follow the present one; an inner batch has one for each message
    const unsigned char *rest         # its other keys
    const unsigned char *end
    unsigned char unique[32]


cdef void find_keys(const unsigned char *record, const Frame *frame, Keys *keys) noexcept nogil:
    """Go to the place before the first key of a record: of its unique keys, then of the others (IndexService.buildIndex)."""
    cdef const unsigned char *properties = record + frame.properties_at
    cdef Py_ssize_t size = 0
    keys.unique_left = 0
    keys.first = find_property(properties, frame.properties_size, N_UNIQ_KEY, &size)
    keys.first_size = size
    if keys.first != NULL and size > 0:
        keys.unique_left = 1
        if size == 32 and is_inner_batch(record):
            memcpy(keys.unique, keys.first, 32)
            keys.unique_left = max(1, count_unique_keys(record, frame))
    keys.rest = find_property(properties, frame.properties_size, N_KEYS, &size)
    keys.end = keys.rest if keys.rest == NULL else keys.rest + size


cdef bint next_key(Keys *keys) noexcept nogil:
    """Go to the next key; False behind the last one."""
    cdef const unsigned char *stop
    if keys.unique_left > 0:
        keys.unique_left -= 1
        if keys.first != NULL:
            keys.at, keys.size, keys.first = keys.first, keys.first_size, NULL
            return True
        if next_unique_key(keys.unique):
            keys.at, keys.size = keys.unique, 32
            return True
        keys.unique_left = 0
    while keys.rest < keys.end:
        stop = <const unsigned char *>memchr(keys.rest, 32, keys.end - keys.rest)
        if stop == NULL:
            stop = keys.end
        keys.at, keys.size, keys.rest = keys.rest, stop - keys.rest, stop + 1
        if keys.size > 0:
            return True
    return False


cdef bint put_keys(IndexFile *index, const unsigned char *record, Frame *frame, int64_t offset, int *done) noexcept nogil:
    """Add a record's keys, without the first ``done``, which counts up; False when the file is full."""
    cdef int64_t timestamp = store_timestamp_of(record)
    cdef int number = 0
    cdef Keys keys
    find_keys(record, frame, &keys)
    while next_key(&keys):
        if number >= done[0]:
            if not put_key(index, index_hash(record + frame.topic_at, frame.topic_size, keys.at, keys.size), offset,
                           timestamp):
                return False
            done[0] = number + 1
        number += 1
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
            if frame_of(part.at(offset), part.left(offset), offset, &frame) != FOUND_RECORD:
                break
            if (get_i32(part.at(offset) + R_SYS_FLAG) & TRANSACTION_BITS) != TRANSACTION_ROLLBACK:
                if not put_keys(&target, part.at(offset), &frame, offset, &done):
                    is_full = True
                    break
            done = 0
            offset += frame.size
    use(index, index.size)  # a key may be in any slot of it
    return offset, done, is_full
