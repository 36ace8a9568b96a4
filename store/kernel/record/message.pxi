# --- messages as they are sent, and what a record is on the disk --------------------------------------------------

# RocketMQ keeps these for itself (MessageConst.STRING_HASH_SET); an application cannot set them as properties.
RESERVED_PROPERTIES = frozenset(
    "KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID "
    "ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY "
    "EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET "
    "TRAN_PREPARED_QUEUE_OFFSET TRANSACTION_CHECK_TIMES CHECK_IMMUNITY_TIME_IN_SECONDS __SHARDINGKEY __CRC32# "
    "TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES "
    "TIMER_DEL_UNIQKEY TIMER_QUEUE_OFFSET".split()
)


@cython.final
@cython.freelist(256)
cdef class Message:
    """One message to send."""

    cdef readonly str topic
    cdef readonly object body
    cdef readonly str tags
    cdef readonly tuple keys
    cdef readonly dict properties
    cdef readonly int flag
    cdef readonly int sys_flag          # of the body as it stands here, such as that it is compressed

    def __init__(self, str topic not None, object body, *, str tags=None, object keys=(), object properties=None,
                 int flag=0):
        self.topic = topic
        self.body = body
        self.tags = tags
        self.keys = (keys,) if isinstance(keys, str) else tuple(keys)
        self.properties = None if properties is None else dict(properties)
        self.flag = flag

    def with_body(self, bytes body not None, int sys_flag):
        cdef Message message = Message.__new__(Message)
        message.topic = self.topic
        message.body = body
        message.tags = self.tags
        message.keys = self.keys
        message.properties = self.properties
        message.flag = self.flag
        message.sys_flag = sys_flag
        return message

    def __repr__(self):
        size = f"{len(self.body)} B" if isinstance(self.body, bytes) else type(self.body).__name__
        return f"Message({self.topic!r}, <{size}>, tags={self.tags!r}, keys={self.keys!r})"

    def __eq__(self, other):
        return isinstance(other, Message) and self._fields() == (<Message>other)._fields()

    __hash__ = None

    cdef tuple _fields(self):
        return self.topic, self.body, self.tags, self.keys, self.properties or {}, self.flag, self.sys_flag

    def __reduce__(self):
        return _message, (self.topic, self.body, self.tags, self.keys, self.properties, self.flag, self.sys_flag)


def _message(topic, body, tags, keys, properties, flag, sys_flag):
    cdef Message message = Message(topic, body, tags=tags, keys=keys, properties=properties, flag=flag)
    message.sys_flag = sys_flag
    return message


@cython.final
@cython.no_gc  # refers to a queue and nothing that could refer back
@cython.freelist(256)
cdef class SendResult:
    """Where a sent message stands."""

    cdef readonly object queue
    cdef readonly uint64_t queue_offset
    cdef readonly uint64_t commit_log_offset
    cdef readonly uint64_t commit_log_end
    cdef readonly bint is_duplicate     # nothing was sent: a message with the key of send_once stood there already
    cdef char unique_key[32]
    cdef str foreign_key                # of a message that another client made, when it has not 32 bytes; else None

    @property
    def message_id(self):
        return self.unique_key[:32].decode("ascii") if self.foreign_key is None else self.foreign_key

    def __repr__(self):
        return (f"SendResult(message_id={self.message_id!r}, queue={self.queue!r}, "
                f"queue_offset={self.queue_offset}, commit_log_offset={self.commit_log_offset}"
                f"{', is_duplicate=True' if self.is_duplicate else ''})")

    def __eq__(self, other):
        return isinstance(other, SendResult) and self.__reduce__() == other.__reduce__()

    __hash__ = None

    def __reduce__(self):
        return _send_result, (
            self.queue, self.queue_offset, self.commit_log_offset, self.commit_log_end, self.message_id,
            self.is_duplicate)


def _send_result(queue, queue_offset, commit_log_offset, commit_log_end, str message_id not None,
                 bint is_duplicate=False):
    cdef SendResult result = SendResult.__new__(SendResult)
    result.queue = queue
    result.queue_offset = queue_offset
    result.commit_log_offset = commit_log_offset
    result.commit_log_end = commit_log_end
    result.is_duplicate = is_duplicate
    name_result(result, message_id)
    return result


def duplicate_of(ReceivedMessage message not None, object queue not None):
    return _send_result(queue, message.queue_offset, message.commit_log_offset,
                        message.commit_log_offset + message.frame.size, message.message_id, True)


cdef int name_result(SendResult result, str message_id) except -1:
    cdef bytes unique_key = message_id.encode()
    if len(unique_key) == 32 and message_id.isascii():
        memcpy(result.unique_key, PyBytes_AS_STRING(unique_key), 32)
    else:
        result.foreign_key = message_id
    return 0


# --- record ----------------------------------------------------------------------------------------------------

cdef enum:  # what stands at a position; store/log/record.py gives them their types
    IS_RECORD = 0
    IS_BLANK = 1
    IS_END = 2           # zeros: nothing was written here
    IS_SHORT = 3         # the bytes end before the record does
    BAD_MAGIC = 4
    BAD_SIZE = 5         # or another number that no record has
    BAD_OFFSET = 6
    BAD_BODY_CRC = 7
    BAD_CRC = 8
    BAD_TOPIC = 9        # a topic is the name of a directory: no record may choose one elsewhere

FOUND = {
    "RECORD": IS_RECORD, "BLANK": IS_BLANK, "END": IS_END, "SHORT": IS_SHORT, "BAD_MAGIC": BAD_MAGIC,
    "BAD_SIZE": BAD_SIZE, "BAD_OFFSET": BAD_OFFSET, "BAD_BODY_CRC": BAD_BODY_CRC, "BAD_CRC": BAD_CRC, "BAD_TOPIC": BAD_TOPIC,
}

cdef unsigned char TOPIC_BYTES[256]  # 1 for what RocketMQ allows in a topic (TopicValidator)
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


cdef void put_crc_property(unsigned char *at, uint32_t crc) noexcept nogil:
    """``__CRC32#`` as RocketMQ 5.2 writes it (MessageDecoder.createCrc32): digits, the least significant first."""
    cdef uint32_t low = crc % 100000
    cdef uint32_t high = crc // 100000
    cdef int digit
    memcpy(at, b"__CRC32#\x01", 9)
    for digit in range(5):  # two chains of divisions at once: each waits for its last one
        at[9 + digit] = <unsigned char>(48 + low % 10)
        at[14 + digit] = <unsigned char>(48 + high % 10)
        low = low // 10
        high = high // 10
    at[19] = 2


cdef int64_t ten_digits(const unsigned char *at) noexcept nogil:
    """Number of ten digits, the least significant first; -1 when one of them is none. Eight of them are read at once."""
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


cdef int check_crc_property(const unsigned char *at, Py_ssize_t size) noexcept nogil:
    """1 when the record ends with its ``__CRC32#``, 0 when with none (as by a 4.9 broker), -1 when with a wrong one.

    Right digits behind a wrong name are a damaged name: without this, a flipped bit in the name would hide the CRC.
    """
    cdef const unsigned char *found = at + size - CRC_PROPERTY_SIZE
    cdef bint named = memcmp(found, b"__CRC32#\x01", 9) == 0
    cdef uint32_t expected = rmq_crc32(0, at, size - CRC_PROPERTY_SIZE) & 0x7FFFFFFF
    if found[CRC_PROPERTY_SIZE - 1] == 2 and ten_digits(found + 9) == <int64_t>expected:
        return 1 if named else -1
    return -1 if named else 0


cdef bint is_utf8(const unsigned char *at, Py_ssize_t size) noexcept nogil:
    """Whether the bytes are what Java writes for a string: UTF-8, the shortest form, without surrogates."""
    cdef Py_ssize_t number
    cdef int left = 0  # bytes that the present character still needs
    cdef unsigned char byte, low = 0x80, high = 0xBF
    for number in range(size):
        byte = at[number]
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


cdef int frame_of(const unsigned char *at, Py_ssize_t available, int64_t commit_log_offset, Frame *frame) noexcept nogil:
    """Find out what stands at ``at``, by all but the CRC; fill ``frame`` when it is a record."""
    cdef Py_ssize_t position = R_BORN_HOST
    cdef int32_t magic, sys_flag
    cdef Py_ssize_t number
    if available < BLANK_SIZE:
        return IS_SHORT if available > 0 else IS_END
    frame.size = get_i32(at)
    magic = get_i32(at + R_MAGIC)
    if magic == BLANK_MAGIC:
        return IS_BLANK
    if magic == 0 and frame.size == 0:
        return IS_END
    if magic != RECORD_MAGIC:
        return BAD_MAGIC
    if frame.size < RECORD_FIXED_SIZE:
        return BAD_SIZE
    if frame.size > available:
        return IS_SHORT
    sys_flag = get_i32(at + R_SYS_FLAG)
    position = RECORD_HEADER_SIZE - 4
    if sys_flag & SYS_FLAG_BORN_HOST_V6:
        position += 12
    if sys_flag & SYS_FLAG_STORE_HOST_V6:
        position += 12
    if position + 7 > frame.size:
        return BAD_SIZE
    frame.body_size = get_i32(at + position)
    frame.body_at = position + 4
    if frame.body_size < 0 or frame.body_at + frame.body_size + 3 > frame.size:
        return BAD_SIZE
    position = frame.body_at + frame.body_size
    frame.topic_size = at[position]
    frame.topic_at = position + 1
    if frame.topic_size > 127 or frame.topic_at + frame.topic_size + 2 > frame.size:
        return BAD_SIZE
    position = frame.topic_at + frame.topic_size
    frame.properties_size = get_i16(at + position)
    frame.properties_at = position + 2
    if frame.properties_size < 0 or frame.properties_at + frame.properties_size != frame.size:
        return BAD_SIZE
    if get_i64(at + R_COMMIT_LOG_OFFSET) != commit_log_offset:
        return BAD_OFFSET
    if get_i32(at + R_QUEUE_ID) < 0 or get_i64(at + R_QUEUE_OFFSET) < 0:
        return BAD_SIZE
    if frame.topic_size == 0:
        return BAD_TOPIC
    for number in range(frame.topic_size):
        if not TOPIC_BYTES[at[frame.topic_at + number]]:
            return BAD_TOPIC
    return IS_RECORD


cdef int parse(const unsigned char *at, Py_ssize_t available, int64_t commit_log_offset, Frame *frame) noexcept nogil:
    """Find out what stands at ``at``; fill ``frame`` when it is a whole and valid record."""
    cdef uint32_t body_crc
    cdef int has_crc
    cdef int found = frame_of(at, available, commit_log_offset, frame)
    if found != IS_RECORD:
        return found
    has_crc = check_crc_property(at, frame.size) if frame.properties_size >= CRC_PROPERTY_SIZE else 0
    if has_crc:
        return IS_RECORD if has_crc > 0 else BAD_CRC
    if (memchr(at + frame.properties_at, 0, frame.properties_size) != NULL
            or not is_utf8(at + frame.properties_at, frame.properties_size)):
        return BAD_SIZE  # torn behind the body, which is all that a record without our CRC protects
    body_crc = rmq_crc32(0, at + frame.body_at, frame.body_size) & 0x7FFFFFFF if frame.body_size else 0
    return IS_RECORD if body_crc == <uint32_t>get_i32(at + R_BODY_CRC) else BAD_BODY_CRC


cdef int reconsume_times_at(const unsigned char *record) noexcept nogil:
    """Where the field stands: 12 bytes further on for each address that is IPv6."""
    cdef int32_t flags = get_i32(record + R_SYS_FLAG)
    cdef int at = R_RECONSUME_TIMES
    if flags & SYS_FLAG_BORN_HOST_V6:
        at += 12
    if flags & SYS_FLAG_STORE_HOST_V6:
        at += 12
    return at


cdef int attempt_of(const unsigned char *record) noexcept nogil:
    """Number of the delivery attempt."""
    cdef int32_t before = get_i32(record + reconsume_times_at(record))
    return before + 1 if before < 0x7FFFFFFF else before


cdef const unsigned char *find_property(const unsigned char *at, Py_ssize_t size, const char *name,
                                        Py_ssize_t name_size, Py_ssize_t *value_size) noexcept nogil:
    """Return where the value of ``name`` begins, NULL when the record has no such property."""
    cdef const unsigned char *end = at + size
    cdef const unsigned char *stop
    while at < end:
        stop = <const unsigned char *>memchr(at, 2, end - at)
        if stop == NULL:
            stop = end
        if stop - at > name_size and at[name_size] == 1 and memcmp(at, name, name_size) == 0:
            value_size[0] = stop - at - name_size - 1
            return at + name_size + 1
        at = stop + 1
    return NULL


cdef int store_timestamp_at(const unsigned char *record) noexcept nogil:
    return R_STORE_TIMESTAMP + (12 if get_i32(record + R_SYS_FLAG) & SYS_FLAG_BORN_HOST_V6 else 0)


cdef int64_t store_timestamp_of(const unsigned char *record) noexcept nogil:
    return get_i64(record + store_timestamp_at(record))


SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OPERATION_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
DELAYS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h".split()  # of levels 1 to 18 [messageDelayLevel]

cdef enum:
    LEVELS = 18

cdef int64_t[LEVELS] DELAY_MS
for _level, _delay in enumerate(DELAYS):
    DELAY_MS[_level] = int(_delay.rstrip("smh")) * {"s": 1000, "m": 60_000, "h": 3_600_000}[_delay.lstrip("0123456789")]


def delay_ms(int level):
    if not 1 <= level <= LEVELS:
        raise ValueError(wrong_level(level, 1))
    return DELAY_MS[level - 1]


cdef int check_level(int level) except -1:
    if not 0 <= level <= LEVELS:
        raise ValueError(wrong_level(level, 0))
    return 0


cdef str wrong_level(int level, int least):
    table = ", ".join([f"{number} {delay}" for number, delay in enumerate(DELAYS, 1)])
    return f"delay_level={level}: a level is {least} to {LEVELS}{', 0 for no delay' if least == 0 else ''}: {table}"


cdef int64_t delay_ms_of(const unsigned char *level, Py_ssize_t size) noexcept nogil:
    """Delay of a level that is written in digits; 0 for none, that of the highest for one beyond it."""
    cdef int64_t number = 0
    cdef Py_ssize_t position
    for position in range(size):
        if not 48 <= level[position] <= 57 or number > 18:
            break
        number = number * 10 + level[position] - 48
    return 0 if number == 0 else DELAY_MS[(number if number < 18 else 18) - 1]


cdef inline bint is_schedule_topic(const unsigned char *name, Py_ssize_t size) noexcept nogil:
    """Tell whether entries of a topic hold times that follow from the store times of the records."""
    return size == 19 and memcmp(name, b"SCHEDULE_TOPIC_XXXX", 19) == 0


cdef inline bint is_timer_topic(const unsigned char *name, Py_ssize_t size) noexcept nogil:
    """Tell whether entries of a topic hold the times at which messages are due."""
    return size == 19 and memcmp(name, b"rmq_sys_wheel_timer", 19) == 0


cdef inline bint holds_times(const unsigned char *name, Py_ssize_t size) noexcept nogil:
    """Tell whether entries of a topic can hold times instead of hashes of tags."""
    return is_schedule_topic(name, size) or is_timer_topic(name, size)


cdef int64_t due_ms_of(const unsigned char *properties, Py_ssize_t properties_size) noexcept nogil:
    """When a message of the timer is due; 0 when it does not say so, or is an operation."""
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t position
    cdef int64_t due_ms = 0
    cdef const unsigned char *value = find_property(properties, properties_size, b"TIMER_DEL_UNIQKEY", 17, &size)
    if value != NULL:
        return 0
    value = find_property(properties, properties_size, b"TIMER_OUT_MS", 12, &size)
    if value == NULL or not 0 < size < 19:
        return 0
    for position in range(size):
        if not 48 <= value[position] <= 57:
            return 0
        due_ms = due_ms * 10 + value[position] - 48
    return due_ms if due_ms > MOST_TAGS_CODE else 0


cdef int64_t tags_code_of(const unsigned char *record, const Frame *frame) noexcept nogil:
    """What the consume queue entry of a record holds: the hash of its tag, or the time at which to deliver it.

    CommitLog.checkMessageAndReturnSize.
    """
    cdef const unsigned char *properties = record + frame.properties_at
    cdef const unsigned char *value
    cdef int64_t delay_ms
    cdef Py_ssize_t size = 0
    if is_schedule_topic(record + frame.topic_at, frame.topic_size):
        value = find_property(properties, frame.properties_size, b"DELAY", 5, &size)
        delay_ms = 0 if value == NULL else delay_ms_of(value, size)
        if delay_ms:
            return store_timestamp_of(record) + delay_ms
    if is_timer_topic(record + frame.topic_at, frame.topic_size):
        delay_ms = due_ms_of(properties, frame.properties_size)
        if delay_ms:
            return delay_ms
    value = find_property(properties, frame.properties_size, b"TAGS", 4, &size)
    return 0 if value == NULL else hash_utf8(value, size)


cdef int64_t DEFAULT_LIMIT = _DEFAULT_LIMIT


@cython.final
@cython.no_gc  # refers to bytes, a queue and strings
@cython.freelist(1024)
cdef class ReceivedMessage:
    """A record of the commit log; every field is decoded when it is read."""

    cdef bytes buffer
    cdef const unsigned char *at
    cdef Frame frame
    cdef readonly object queue
    cdef readonly int delivery_attempt
    cdef bint delivered                 # to a group: what its retry topic holds is shown as of the topic where it failed,
                                        # a half message as of the topic that it is for
    cdef dict parsed
    cdef bytes opened                   # the body, from when it was asked for until it is acknowledged; if it is compressed
    cdef readonly int64_t max_opened_body_bytes
    cdef bytearray rest                 # of its batch: how many messages are not finished, in four bytes, and a byte for each
    cdef readonly int inner_number
    cdef readonly object unopened

    @property
    def topic(self):
        if self.delivered and self.frame.topic_size > 7 and memcmp(self.at + self.frame.topic_at, b"%RETRY%", 7) == 0:
            origin = self._property(b"RETRY_TOPIC", 11)
            if origin:
                return origin
        if self.delivered and self.frame.topic_size == 24 and memcmp(
                self.at + self.frame.topic_at, b"RMQ_SYS_TRANS_HALF_TOPIC", 24) == 0:
            return self._property(b"REAL_TOPIC", 10) or HALF_TOPIC
        return PyUnicode_DecodeUTF8(<char *>self.at + self.frame.topic_at, self.frame.topic_size, NULL)

    @property
    def queue_id(self):
        return get_i32(self.at + R_QUEUE_ID)

    @property
    def queue_offset(self):
        return get_i64(self.at + R_QUEUE_OFFSET)

    @property
    def commit_log_offset(self):
        return get_i64(self.at + R_COMMIT_LOG_OFFSET)

    @property
    def size(self):
        return self.frame.size

    @property
    def body(self):
        cdef bytes opened
        if get_i32(self.at + R_SYS_FLAG) & SYS_FLAG_COMPRESSED:
            opened = self.opened
            if opened is None:
                opened = self.opened = self.open_body()
            return opened
        return PyBytes_FromStringAndSize(<char *>self.at + self.frame.body_at, self.frame.body_size)

    @property
    def stored_body(self):
        return PyBytes_FromStringAndSize(<char *>self.at + self.frame.body_at, self.frame.body_size)

    def open_body(self, int64_t limit=0x7FFFFFFFFFFFFFFF):
        return open_body(self.stored_body, self.sys_flag, min(limit, self.max_opened_body_bytes))

    @property
    def flag(self):
        return get_i32(self.at + R_FLAG)

    @property
    def sys_flag(self):
        return get_i32(self.at + R_SYS_FLAG)

    @property
    def born_timestamp(self):
        return get_i64(self.at + R_BORN_TIMESTAMP)

    @property
    def store_timestamp(self):
        return store_timestamp_of(self.at)

    @property
    def reconsume_times(self):
        return attempt_of(self.at) - 1

    @property
    def prepared_transaction_offset(self):
        return get_i64(self.at + reconsume_times_at(self.at) + R_PREPARED_OFFSET - R_RECONSUME_TIMES)

    @property
    def tags(self):
        return self._property(b"TAGS", 4)

    @property
    def keys(self):
        text = self._property(b"KEYS", 4)
        return () if text is None else tuple([key for key in text.split(" ") if key])

    @property
    def sharding_key(self):
        return self._property(b"__SHARDINGKEY", 13)

    @property
    def message_id(self):
        unique = self._property(b"UNIQ_KEY", 8)
        return self.offset_message_id if unique is None else unique

    @property
    def offset_message_id(self):
        flags = get_i32(self.at + R_SYS_FLAG)
        host_at = 76 if flags & SYS_FLAG_BORN_HOST_V6 else R_STORE_HOST
        host = self.at[host_at:host_at + (20 if flags & SYS_FLAG_STORE_HOST_V6 else 8)]
        return (host + self.at[R_COMMIT_LOG_OFFSET:R_COMMIT_LOG_OFFSET + 8]).hex().upper()

    @property
    def properties(self):
        cdef Py_ssize_t start = self.frame.properties_at
        if self.parsed is None:
            self.parsed = {}
            text = PyUnicode_DecodeUTF8(<char *>self.at + start, self.frame.properties_size, "replace")
            for pair in text.split("\x02"):
                name, _, value = pair.partition("\x01")
                if name and value and name != "__CRC32#":
                    self.parsed[name] = value
        return self.parsed

    def some_properties(self, tuple names not None):
        """Those of ``properties`` that are named, as bytes, without decoding the others."""
        cdef dict found = {}
        cdef const unsigned char *at
        cdef const unsigned char *value
        cdef const unsigned char *end = self.at + self.frame.properties_at + self.frame.properties_size
        cdef Py_ssize_t size = 0
        for name in names:
            at = self.at + self.frame.properties_at
            while True:  # of several with one name the last one counts
                value = find_property(at, end - at, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), &size)
                if value == NULL:
                    break
                if size:
                    found[name.decode()] = PyUnicode_DecodeUTF8(<char *>value, size, "replace")
                at = value + size
        return found

    @property
    def tags_code(self):
        return tags_code_of(self.at, &self.frame)

    cdef str _property(self, const char *name, Py_ssize_t name_size):
        cdef Py_ssize_t size = 0
        cdef const unsigned char *value = find_property(
            self.at + self.frame.properties_at, self.frame.properties_size, name, name_size, &size)
        return None if value == NULL else PyUnicode_DecodeUTF8(<char *>value, size, "replace")

    def again(self, int attempt=0):
        cdef ReceivedMessage same = _again(self.record(), self.queue, attempt or self.delivery_attempt + 1,
                                           self.delivered, self.max_opened_body_bytes)
        same.rest, same.inner_number, same.unopened = self.rest, self.inner_number, self.unopened
        return same

    def check_opened(self):
        if self.unopened is not None:
            raise type(self.unopened)(*self.unopened.args)  # which collects the frames that it comes through

    def as_delivered(self):
        return _again(self.record(), self.queue, self.delivery_attempt, True, self.max_opened_body_bytes)

    def limited_to(self, int64_t max_opened_body_bytes):
        self.max_opened_body_bytes = max_opened_body_bytes
        return self

    def record(self):
        return PyBytes_FromStringAndSize(<char *>self.at, self.frame.size)

    def __repr__(self):
        return (f"ReceivedMessage(topic={self.topic!r}, queue_id={self.queue_id}, queue_offset={self.queue_offset}, "
                f"tags={self.tags!r}, keys={self.keys!r}, body=<{self.frame.body_size} B>)")

    def __reduce__(self):
        return _again, (self.record(), self.queue, self.delivery_attempt, self.delivered, self.max_opened_body_bytes)


cdef ReceivedMessage received(bytes buffer, Py_ssize_t position, Frame *frame, object queue, int attempt, bint delivered):
    cdef ReceivedMessage message = ReceivedMessage.__new__(ReceivedMessage)
    message.buffer = buffer
    message.at = <const unsigned char *>PyBytes_AS_STRING(buffer) + position
    message.frame = frame[0]
    message.queue = queue
    message.delivery_attempt = attempt
    message.delivered = delivered
    message.max_opened_body_bytes = DEFAULT_LIMIT
    return message


def _again(bytes record not None, object queue, int attempt, bint delivered=False,
           int64_t max_opened_body_bytes=DEFAULT_LIMIT):
    cdef Frame frame
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(record)
    cdef int found = IS_SHORT
    if PyBytes_GET_SIZE(record) >= RECORD_FIXED_SIZE:
        found = parse(at, PyBytes_GET_SIZE(record), get_i64(at + R_COMMIT_LOG_OFFSET), &frame)
    if found != IS_RECORD:
        raise ValueError(f"not a record: outcome {found}")
    return received(record, 0, &frame, queue, attempt, delivered).limited_to(max_opened_body_bytes)


def decode(buffer, Py_ssize_t position, int64_t commit_log_offset, object queue=None):
    cdef Py_buffer view
    cdef Frame frame
    cdef int found
    cdef const unsigned char *at
    cdef bytes record = None
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= position <= view.len:
            raise ValueError(f"position {position} is not inside {view.len} bytes")
        at = <const unsigned char *>view.buf + position
        found = parse(at, view.len - position, commit_log_offset, &frame)
        if found != IS_RECORD:
            return found
        record = PyBytes_FromStringAndSize(<char *>at, frame.size)
    finally:
        PyBuffer_Release(&view)
    # The bytes can change under a hostile writer; what was checked must be what is kept.
    at = <const unsigned char *>PyBytes_AS_STRING(record)
    found = parse(at, frame.size, commit_log_offset, &frame)
    return received(record, 0, &frame, queue, attempt_of(at), False) if found == IS_RECORD else found
