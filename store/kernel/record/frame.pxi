# --- the record: where its parts stand, and whether it is whole -------------------------------------------------------

cdef unsigned char TOPIC_BYTES[256]  # 1 for each byte that RocketMQ allows in a topic (TopicValidator)
memset(TOPIC_BYTES, 0, 256)
for _allowed in bytearray(b"%|_-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"):
    TOPIC_BYTES[_allowed] = 1


cdef struct Frame:
    Py_ssize_t size
    Py_ssize_t body_at
    Py_ssize_t body_size
    Py_ssize_t topic_at
    Py_ssize_t topic_size
    Py_ssize_t properties_at
    Py_ssize_t properties_size


cdef inline int born_shift(const unsigned char *record) noexcept nogil:
    """Bytes by which an IPv6 address of the producer moves the fields behind it."""
    return 12 if get_i32(record + R_SYS_FLAG) & SYS_FLAG_BORN_HOST_V6 else 0


cdef inline int header_shift(const unsigned char *record) noexcept nogil:
    """Bytes by which IPv6 addresses of producer and store move the fields behind both."""
    return born_shift(record) + (12 if get_i32(record + R_SYS_FLAG) & SYS_FLAG_STORE_HOST_V6 else 0)


cdef inline int store_host_at(const unsigned char *record) noexcept nogil:
    return R_STORE_HOST + born_shift(record)


cdef inline int store_host_size(const unsigned char *record) noexcept nogil:
    return 20 if get_i32(record + R_SYS_FLAG) & SYS_FLAG_STORE_HOST_V6 else 8


cdef void put_crc_property(unsigned char *at, uint32_t crc) noexcept nogil:
    """``__CRC32#`` as RocketMQ 5.2 writes it (MessageDecoder.createCrc32): digits, the least significant first."""
    cdef uint32_t low = crc % 100000
    cdef uint32_t high = crc // 100000
    cdef int digit
    memcpy(at, N_CRC.text, N_CRC.size)
    at[8] = 1
    for digit in range(5):  # two chains of divisions side by side: within a chain each waits for the one before
        at[9 + digit] = <unsigned char>(48 + low % 10)
        at[14 + digit] = <unsigned char>(48 + high % 10)
        low = low // 10
        high = high // 10
    at[19] = 2


cdef int64_t ten_digits(const unsigned char *at) noexcept nogil:
    """The number in ten digits, the least significant first.

    -1 when a byte is not a digit. Reads eight bytes at once.
    """
    cdef uint64_t digits = <uint64_t>get_i64(at)  # big-endian: the most significant one is in the lowest byte
    cdef unsigned int ninth = at[8] - 48
    cdef unsigned int tenth = at[9] - 48
    if (digits & 0xF0F0F0F0F0F0F0F0ULL | (digits + 0x0606060606060606ULL & 0xF0F0F0F0F0F0F0F0ULL) >> 4) != 0x3333333333333333ULL:
        return -1
    if ninth > 9 or tenth > 9:
        return -1
    digits = (digits & 0x0F0F0F0F0F0F0F0FULL) * 2561 >> 8               # pairs: 10 * lower + higher
    digits = (digits & 0x00FF00FF00FF00FFULL) * 6553601 >> 16           # fours
    digits = (digits & 0x0000FFFF0000FFFFULL) * 42949672960001ULL >> 32
    return <int64_t>digits + 100000000 * <int64_t>ninth + 1000000000 * <int64_t>tenth


cdef inline bint is_crc_property(const unsigned char *at) noexcept nogil:
    """Whether the property at ``at``, of CRC_PROPERTY_SIZE bytes, is called ``__CRC32#``."""
    return is_pair_of(at, CRC_PROPERTY_SIZE, N_CRC)


cdef bint has_our_crc(const unsigned char *record, const Frame *frame) noexcept nogil:
    """Whether a valid record has the CRC over all of it, and so over its queue offset."""
    return frame.properties_size >= CRC_PROPERTY_SIZE and is_crc_property(record + frame.size - CRC_PROPERTY_SIZE)


cdef int check_crc_property(const unsigned char *at, Py_ssize_t size) noexcept nogil:
    """1 when the record ends with its ``__CRC32#``, 0 when it has no such property (a 4.9 broker's), -1 when it is wrong.

    Right digits behind a wrong name mean a damaged name. Without this rule a flipped bit in the name would hide the CRC.
    """
    cdef const unsigned char *found = at + size - CRC_PROPERTY_SIZE
    cdef bint named = is_crc_property(found)
    cdef uint32_t expected = rmq_crc32(0, at, size - CRC_PROPERTY_SIZE) & 0x7FFFFFFF
    if found[CRC_PROPERTY_SIZE - 1] == 2 and ten_digits(found + 9) == <int64_t>expected:
        return 1 if named else -1
    return -1 if named else 0


cdef bint is_utf8(const unsigned char *at, Py_ssize_t size) noexcept nogil:
    """Whether the bytes are UTF-8 as Java writes it: the shortest form, without surrogates."""
    cdef Py_ssize_t number = 0
    cdef int left = 0  # bytes that the current character still needs
    cdef unsigned char byte, low = 0x80, high = 0xBF
    cdef uint64_t eight = 0, high_bits = <uint64_t>0x80808080 << 32 | <uint64_t>0x80808080
    while number < size:
        if left == 0 and size - number >= 8:
            memcpy(&eight, at + number, 8)
            if eight & high_bits == 0:  # ASCII
                number += 8
                continue
        byte = at[number]
        number += 1
        if left:
            if not low <= byte <= high:
                return False
            low, high = 0x80, 0xBF
            left -= 1
        elif byte >= 0x80:
            if not 0xC2 <= byte <= 0xF4:
                return False
            left = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
            low = 0xA0 if byte == 0xE0 else 0x90 if byte == 0xF0 else 0x80
            high = 0x9F if byte == 0xED else 0x8F if byte == 0xF4 else 0xBF
    return left == 0


cdef inline int sizes_of(const unsigned char *at, Py_ssize_t available, int32_t expected, Frame *frame) noexcept nogil:
    """Tell what stands at ``at`` by its magic and its sizes; fill ``frame`` when these are a record's.

    The size of the topic has one byte behind RECORD_MAGIC, and two behind LONG_TOPIC_MAGIC.
    """
    cdef Py_ssize_t position
    cdef int32_t magic
    if available < BLANK_RECORD_SIZE:
        return FOUND_SHORT if available > 0 else FOUND_END
    frame.size = get_i32(at)
    magic = get_i32(at + R_MAGIC)
    if magic == BLANK_MAGIC:
        return FOUND_BLANK
    if magic == 0 and frame.size == 0:
        return FOUND_END
    if magic != expected:
        return FOUND_BAD_MAGIC
    if frame.size < RECORD_FIXED_SIZE:
        return FOUND_BAD_SIZE
    if frame.size > available:
        return FOUND_SHORT
    position = R_BODY_SIZE + header_shift(at)
    if position + 7 > frame.size:
        return FOUND_BAD_SIZE
    frame.body_size = get_i32(at + position)
    frame.body_at = position + 4
    if frame.body_size < 0 or frame.body_at + frame.body_size + 3 > frame.size:
        return FOUND_BAD_SIZE
    position = frame.body_at + frame.body_size
    if expected == RECORD_MAGIC:
        frame.topic_size = at[position]
        frame.topic_at = position + 1
        if frame.topic_size > 127:
            return FOUND_BAD_SIZE
    else:
        frame.topic_size = get_i16(at + position)
        frame.topic_at = position + 2
    if frame.topic_size < 0 or frame.topic_at + frame.topic_size + 2 > frame.size:
        return FOUND_BAD_SIZE
    position = frame.topic_at + frame.topic_size
    frame.properties_size = get_i16(at + position)
    frame.properties_at = position + 2
    if frame.properties_size < 0 or frame.properties_at + frame.properties_size != frame.size:
        return FOUND_BAD_SIZE
    return FOUND_RECORD


cdef int frame_of(const unsigned char *at, Py_ssize_t available, int64_t commit_log_offset, Frame *frame) noexcept nogil:
    """Tell what stands at ``at`` by everything but the CRC; fill ``frame`` when it is a record."""
    cdef int found = sizes_of(at, available, RECORD_MAGIC, frame)
    cdef Py_ssize_t number
    if found != FOUND_RECORD:
        return found
    if get_i64(at + R_COMMIT_LOG_OFFSET) != commit_log_offset:
        return FOUND_BAD_OFFSET
    if get_i32(at + R_QUEUE_ID) < 0 or get_i64(at + R_QUEUE_OFFSET) < 0:
        return FOUND_BAD_SIZE
    if frame.topic_size == 0:
        return FOUND_BAD_TOPIC
    for number in range(frame.topic_size):
        if not TOPIC_BYTES[at[frame.topic_at + number]]:
            return FOUND_BAD_TOPIC
    return FOUND_RECORD


cdef int parse(const unsigned char *at, Py_ssize_t available, int64_t commit_log_offset, Frame *frame) noexcept nogil:
    """Tell what stands at ``at``; fill ``frame`` when it is a whole and valid record."""
    cdef uint32_t body_crc
    cdef int has_crc
    cdef int found = frame_of(at, available, commit_log_offset, frame)
    if found != FOUND_RECORD:
        return found
    has_crc = check_crc_property(at, frame.size) if frame.properties_size >= CRC_PROPERTY_SIZE else 0
    if has_crc:
        return FOUND_RECORD if has_crc > 0 else FOUND_BAD_CRC
    if (memchr(at + frame.properties_at, 0, frame.properties_size) != NULL
            or not is_utf8(at + frame.properties_at, frame.properties_size)):
        return FOUND_BAD_SIZE  # torn behind the body: without our CRC a record protects its body only
    body_crc = rmq_crc32(0, at + frame.body_at, frame.body_size) & 0x7FFFFFFF if frame.body_size else 0
    return FOUND_RECORD if body_crc == <uint32_t>get_i32(at + R_BODY_CRC) else FOUND_BAD_BODY_CRC


cdef int parse_sent(const unsigned char *at, Py_ssize_t available, Frame *frame) noexcept nogil:
    """Tell what stands at ``at`` in bytes that a broker sent; fill ``frame`` when it is a whole record.

    As clients of RocketMQ do (MessageDecoder.decode), this checks the CRC of the body only: for a check of a transaction
    the broker puts another topic and queue into the record, and leaves ``__CRC32#`` as it was.
    """
    cdef uint32_t body_crc
    cdef bint is_long = available >= BLANK_RECORD_SIZE and get_i32(at + R_MAGIC) == LONG_TOPIC_MAGIC
    cdef int found = sizes_of(at, available, LONG_TOPIC_MAGIC, frame) if is_long else sizes_of(at, available, RECORD_MAGIC, frame)
    if found != FOUND_RECORD:
        return found
    if get_i32(at + R_QUEUE_ID) < 0 or get_i64(at + R_QUEUE_OFFSET) < 0 or get_i64(at + R_COMMIT_LOG_OFFSET) < 0:
        return FOUND_BAD_SIZE
    if frame.topic_size == 0 or not is_utf8(at + frame.topic_at, frame.topic_size):
        return FOUND_BAD_TOPIC
    body_crc = rmq_crc32(0, at + frame.body_at, frame.body_size) & 0x7FFFFFFF if frame.body_size else 0
    return FOUND_RECORD if body_crc == <uint32_t>get_i32(at + R_BODY_CRC) else FOUND_BAD_BODY_CRC


cdef int reconsume_times_at(const unsigned char *record) noexcept nogil:
    return R_RECONSUME_TIMES + header_shift(record)


cdef int prepared_offset_at(const unsigned char *record) noexcept nogil:
    return R_PREPARED_TRANSACTION_OFFSET + header_shift(record)


cdef int attempt_of(const unsigned char *record) noexcept nogil:
    """Number of the delivery attempt that this record is for, from 1."""
    cdef int32_t before = get_i32(record + reconsume_times_at(record))
    return before + 1 if before < 0x7FFFFFFF else before


cdef int store_timestamp_at(const unsigned char *record) noexcept nogil:
    return R_STORE_TIMESTAMP + born_shift(record)


cdef int64_t store_timestamp_of(const unsigned char *record) noexcept nogil:
    return get_i64(record + store_timestamp_at(record))


cdef unsigned char *put_head(unsigned char *start, int32_t queue_id, int64_t born, const unsigned char *born_host,
                             const unsigned char *store_host, const unsigned char *body, Py_ssize_t body_size,
                             const char *topic, Py_ssize_t topic_size) noexcept nogil:
    """Write a record up to its topic, with IPv4 hosts; return where the size of its properties goes."""
    cdef unsigned char *at = start + RECORD_HEADER_SIZE
    memset(start, 0, RECORD_HEADER_SIZE)
    put_i32(start + R_MAGIC, RECORD_MAGIC)
    put_i32(start + R_QUEUE_ID, queue_id)
    put_i64(start + R_BORN_TIMESTAMP, born)
    memcpy(start + R_BORN_HOST, born_host, 8)
    memcpy(start + R_STORE_HOST, store_host, 8)
    put_i32(start + R_BODY_SIZE, <int32_t>body_size)
    memcpy(at, body, body_size)
    if body_size:
        put_i32(start + R_BODY_CRC, <int32_t>(rmq_crc32(0, at, body_size) & 0x7FFFFFFF))
    at += body_size
    at[0] = <unsigned char>topic_size
    memcpy(at + 1, topic, topic_size)
    return at + 1 + topic_size
