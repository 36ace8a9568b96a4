# --- inner batches: many messages in the body of one record; store/log/inner_batch.py describes the format ------------

cdef enum:
    SYS_FLAG_UNWRAPPED = 0xC0    # INNER_BATCH, and NEED_UNWRAP, which only brokers set
    SYS_FLAG_INNER_BATCH = 0x80
    SYS_FLAG_COMPRESSION = 0x701
    INNER_FLAG = 12
    INNER_BODY_SIZE = 16
    INNER_HEAD_SIZE = 20
    MOST_INNER = 16384           # a quarter of the unique keys that a process can make in one ms
    UNFINISHED = 1

MAX_INNER_MESSAGES = MOST_INNER

cdef str WHAT_IS_WRONG(Py_ssize_t position, str what):
    return f"a batch is damaged: byte {position} of its content: {what}"


cdef bint is_inner_batch(const unsigned char *record) noexcept nogil:
    return get_i32(record + R_SYS_FLAG) & SYS_FLAG_INNER_BATCH != 0


cdef Py_ssize_t inner_size(const unsigned char *at, Py_ssize_t left) noexcept nogil:
    """Bytes of the inner message at ``at``; 0 when its sizes do not add up, -1 when its properties leave no room."""
    cdef int64_t total, body_size, properties_size
    if left < INNER_HEAD_SIZE + 2:
        return 0
    total = get_i32(at)
    body_size = get_i32(at + INNER_BODY_SIZE)
    if body_size < 0 or total > left or INNER_HEAD_SIZE + body_size + 2 > total:
        return 0
    properties_size = get_i16(at + INNER_HEAD_SIZE + body_size)
    if properties_size < 0 or INNER_HEAD_SIZE + body_size + 2 + properties_size != total:
        return 0
    return total if properties_size + 1 + CRC_PROPERTY_SIZE <= MAX_PROPERTIES_BYTES else -1


cdef Py_ssize_t put_inner_record(unsigned char *at, const unsigned char *record, const Frame *outer, const unsigned char *inner,
                                 const char *topic, Py_ssize_t topic_size, Frame *frame) noexcept nogil:
    """Write an inner message as a record of its own, with the position of its batch; return its size."""
    cdef const unsigned char *content = inner + INNER_HEAD_SIZE
    cdef unsigned char *start = at
    cdef Py_ssize_t properties_size
    frame.body_size = get_i32(inner + INNER_BODY_SIZE)
    frame.body_at = outer.body_at
    memcpy(at, record, outer.body_at)
    put_i32(at + R_FLAG, get_i32(inner + INNER_FLAG))
    put_i32(at + R_SYS_FLAG, get_i32(record + R_SYS_FLAG) & ~(SYS_FLAG_UNWRAPPED | SYS_FLAG_COMPRESSION))
    put_i32(at + outer.body_at - 4, <int32_t>frame.body_size)
    put_i32(at + R_BODY_CRC, <int32_t>(rmq_crc32(0, content, frame.body_size) & 0x7FFFFFFF) if frame.body_size else 0)
    at += outer.body_at
    memcpy(at, content, frame.body_size)
    at += frame.body_size
    at[0] = <unsigned char>topic_size
    frame.topic_at = at + 1 - start
    frame.topic_size = topic_size
    memcpy(at + 1, topic, topic_size)
    at += 1 + topic_size
    content += frame.body_size
    properties_size = get_i16(content)
    frame.properties_at = at + 2 - start
    memcpy(at + 2, content + 2, properties_size)
    if properties_size and at[1 + properties_size] != 2:  # RocketMQ may leave out the last separator
        at[2 + properties_size] = 2
        properties_size += 1
    frame.properties_size = properties_size + CRC_PROPERTY_SIZE
    put_i16(at, <int>frame.properties_size)
    at += 2 + properties_size
    frame.size = at + CRC_PROPERTY_SIZE - start
    put_i32(start, <int32_t>frame.size)
    put_crc_property(at, rmq_crc32(0, start, at - start) & 0x7FFFFFFF)
    return frame.size


def inner_messages(ReceivedMessage record not None):
    cdef bytes content = record.open_body()
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(content)
    cdef Py_ssize_t content_size = PyBytes_GET_SIZE(content)
    cdef Py_ssize_t position = 0
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t inner
    cdef Py_ssize_t topic_size = 0
    cdef int count = 0
    cdef int number
    cdef str name = record.topic
    cdef const char *topic = PyUnicode_AsUTF8AndSize(name, &topic_size)
    cdef str stated = record.property_of(N_INNER_NUM)
    cdef bytes records
    cdef bytearray rest
    cdef ReceivedMessage message
    cdef Frame frame
    cdef list messages = []
    if not is_inner_batch(record.at):
        raise ValueError(f"{record!r} is not a batch")
    if topic_size > 127:
        raise BodyUnreadable(f"a batch cannot be opened: its topic has {topic_size} bytes")
    while position < content_size:
        inner = inner_size(at + position, content_size - position)
        if inner <= 0:
            raise BodyUnreadable(WHAT_IS_WRONG(position, "sizes do not add up" if inner == 0 else "its properties are too long"))
        count += 1
        if count > MOST_INNER:
            raise BodyUnreadable(f"a batch of more than {MOST_INNER} messages, which is the limit")
        size += inner + record.frame.body_at + topic_size + CRC_PROPERTY_SIZE
        position += inner
    if count == 0 or (stated is not None and stated != str(count)):
        raise BodyUnreadable(WHAT_IS_WRONG(position, f"{count} messages, and {stated or 'at least 1'} were sent"))
    records = PyBytes_FromStringAndSize(NULL, size)
    rest = bytearray(4 + count)
    put_i32(<unsigned char *>PyByteArray_AS_STRING(rest), count)
    memset(PyByteArray_AS_STRING(rest) + 4, UNFINISHED, count)
    position = 0
    for number in range(count):
        put_inner_record(<unsigned char *>PyBytes_AS_STRING(records) + position, record.at, &record.frame, at, topic,
                         topic_size, &frame)
        at += get_i32(at)
        message = received(records, position, &frame, record.queue, record.delivery_attempt, record.delivered)
        message.rest = rest
        message.inner_number = number
        messages.append(message)
        position += frame.size
    return messages


cdef int finish_inner(ReceivedMessage message) noexcept:
    """Mark one message of a batch finished; return how many are unfinished. A second time changes nothing."""
    cdef unsigned char *rest = <unsigned char *>PyByteArray_AS_STRING(message.rest)
    cdef int left = get_i32(rest)
    if rest[4 + message.inner_number] == UNFINISHED:
        rest[4 + message.inner_number] = 0
        left -= 1
        put_i32(rest, left)
    return left


cdef int32_t number_in(const unsigned char *digits, Py_ssize_t size) noexcept nogil:
    """The number of messages that a batch names; 1 for a number that is not possible."""
    cdef int32_t value = 0
    cdef Py_ssize_t position
    for position in range(size):
        if not is_digit(digits[position]) or value > MOST_INNER:
            return 1
        value = 10 * value + digits[position] - 48
    return value if 1 <= value <= MOST_INNER else 1


cdef int count_unique_keys(const unsigned char *record, const Frame *frame) noexcept nogil:
    """How many unique keys a record stands for: in a batch made here they follow each other, from UNIQ_KEY on."""
    cdef Py_ssize_t size = 0
    cdef const unsigned char *value
    if not is_inner_batch(record):
        return 1
    value = find_property(record + frame.properties_at, frame.properties_size, N_INNER_NUM, &size)
    return 1 if value == NULL else number_in(value, size)


cdef bint next_unique_key(unsigned char *key) noexcept nogil:
    """Count up the last four of 32 hexadecimal digits, as a producer's counter does.

    False when one is not such a digit.
    """
    cdef int digit
    for digit in range(31, 27, -1):
        if key[digit] == 70:  # F
            key[digit] = 48
            continue
        if not (is_digit(key[digit]) or 65 <= key[digit] < 70):
            return False
        key[digit] = 65 if key[digit] == 57 else key[digit] + 1
        break
    return True
