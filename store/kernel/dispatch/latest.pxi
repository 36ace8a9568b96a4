# --- the latest record of each key of a queue, for compaction ---------------------------------------------------------

cdef bytes first_key(const unsigned char *record, const Frame *frame):
    """The first key of a checked record, None for a record without keys."""
    cdef Py_ssize_t size = 0
    cdef const unsigned char *at = find_property(
        record + frame.properties_at, frame.properties_size, N_KEYS, &size)
    cdef const unsigned char *end = at + size
    cdef const unsigned char *stop
    if at == NULL:
        return None
    while at < end and at[0] == 32:
        at += 1
    stop = <const unsigned char *>memchr(at, 32, end - at) if at < end else NULL
    if stop == NULL:
        stop = end
    return PyBytes_FromStringAndSize(<const char *>at, stop - at) if stop > at else None


def key_and_body_size(ReceivedMessage message not None):
    return first_key(message.at, &message.frame), message.frame.body_size


def note_latest(dict latest not None, Py_ssize_t most, bytes entries not None, Py_ssize_t at, int64_t first,
                bytes topic not None, int32_t queue_id, part, int64_t base):
    cdef const unsigned char *entry = <const unsigned char *>PyBytes_AS_STRING(entries)
    cdef Py_ssize_t count = PyBytes_GET_SIZE(entries) // CONSUME_QUEUE_ENTRY_SIZE
    cdef Py_ssize_t size, without_key = 0
    cdef int64_t offset
    cdef _Range log = _Range(part, base, base, base)
    cdef const unsigned char *record
    cdef Frame frame
    cdef int found = FOUND_RECORD
    if not 0 <= at <= count:
        raise ValueError(f"entry {at} is not among {count}")
    while at < count:
        offset, size = get_i64(entry + at * CONSUME_QUEUE_ENTRY_SIZE), get_i32(entry + at * CONSUME_QUEUE_ENTRY_SIZE + E_SIZE)
        if not is_possible(offset, size):
            return at, FOUND_END, without_key
        if offset < log.base or offset - log.base > log.view.len - size:
            return at, IS_ELSEWHERE, without_key
        record = log.at(offset)
        found = parse(record, size, offset, &frame)
        if found != FOUND_RECORD:
            return at, found, without_key
        if (frame.size != size or get_i64(record + R_QUEUE_OFFSET) != first + at or get_i32(record + R_QUEUE_ID) != queue_id
                or frame.topic_size != PyBytes_GET_SIZE(topic)
                or memcmp(record + frame.topic_at, PyBytes_AS_STRING(topic), frame.topic_size) != 0):
            return at, IS_OTHER, without_key
        key = first_key(record, &frame)
        if key is None:
            without_key += 1
        elif len(latest) >= most and key not in latest:
            return at, IS_FULL, without_key
        else:
            latest[key] = offset
        at += 1
    return at, FOUND_RECORD, without_key
