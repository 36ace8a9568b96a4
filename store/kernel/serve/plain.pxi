# --- plain sends: requests to send one message of which nothing special is to be thought, from bytes to bytes ---------

cdef enum:
    MOST_PAIRS = 32               # properties of a message that are compared with each other
    ANSWER_ROOM = 512             # bytes of an answer without the texts of its template
    HAS_KEPT_FLAGS = 0x703        # how a body is compressed, and several tags

cdef enum:                        # numbers in the template of an answer
    A_END = 0
    A_OPAQUE = 1
    A_MESSAGE_ID = 2
    A_QUEUE_ID = 3
    A_QUEUE_OFFSET = 4

# Names of properties that change where a message goes or what is answered, or that only a store writes.
_SPECIAL = [b"DELAY", b"TIMER_", b"TRAN_MSG", b"REPLY_TO_CLIENT", b"__CRC32#", b"INNER_", b"CLUSTER", b"RETRY_TOPIC",
            b"REAL_", b"MSG_REGION", b"TRACE_ON"]
cdef Name[11] SPECIAL
for _number in range(11):
    SPECIAL[_number] = name_of(PyBytes_AS_STRING(<bytes>_SPECIAL[_number]), len(_SPECIAL[_number]))


cdef struct PlainSend:            # one request, and where its parts stand
    Head head
    const Text *fields
    bint is_binary
    int32_t queue_id
    int32_t sys_flag
    int32_t flag
    int32_t reconsume_times
    int64_t born_timestamp
    const unsigned char *body
    Py_ssize_t body_size


@cython.final
cdef class PlainSends:
    """Answers requests 10 and 310 for messages of which nothing special is to be thought.

    ``queues_of(topic)`` returns how many queues of a topic such messages may go to, 0 for none; it is asked once, and
    again when the 32-bit word at byte ``changes_at`` of ``shared`` has changed.
    """

    cdef Appender appender
    cdef Mapping shared
    cdef Py_ssize_t changes_at
    cdef uint32_t changes
    cdef object queues_of
    cdef dict topics              # name in bytes: (name, number of queues)
    cdef bytes added              # the properties that a broker adds
    cdef list template            # of an answer in JSON: (text, what follows it)
    cdef bytes binary_fixed       # language and version of a binary answer
    cdef bytes binary_tail        # the fields that all answers have
    cdef Py_ssize_t most_frame_bytes
    cdef unsigned char *out
    cdef Py_ssize_t out_size
    cdef Py_ssize_t out_capacity
    cdef unsigned char *scratch
    cdef readonly uint64_t sent   # messages
    cdef readonly uint64_t bytes_sent
    cdef public bint is_enabled

    def __init__(self, Appender appender not None, Mapping shared not None, Py_ssize_t changes_at, object queues_of, *,
                 str added not None, list template not None, int language, int version, list tail not None,
                 Py_ssize_t most_frame_bytes):
        if not 0 <= changes_at <= shared.size - 4:
            raise ValueError(f"byte {changes_at} is not a word of the runtime file")
        self.appender = appender
        self.shared = shared
        self.changes_at = changes_at
        self.queues_of = queues_of
        self.topics = {}
        self.added = added.encode()
        self.template = [(<bytes?>text, <int>follows) for text, follows in template]
        self.binary_fixed = language.to_bytes(1, "big", signed=True) + version.to_bytes(2, "big")
        self.binary_tail = b"".join([binary_pair(name, value) for name, value in tail])
        self.most_frame_bytes = most_frame_bytes
        self.is_enabled = True
        self.scratch = <unsigned char *>malloc(MOST_HEADER_BYTES)
        if self.scratch == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.scratch)
        free(self.out)

    def take(self, bytes data not None, Py_ssize_t at, bytes born_host not None, bytes store_host not None):
        cdef const unsigned char *start = <const unsigned char *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t end
        cdef PlainSend send
        self.out_size = 0
        if not 0 <= at <= size:
            raise ValueError(f"position {at} is not inside {size} bytes")
        while self.is_enabled:
            end = self.read(start, at, size, &send)
            if end == 0 or not self.store(&send, born_host, store_host):
                break
            at = end
        return PyBytes_FromStringAndSize(<char *>self.out, self.out_size) if self.out_size else b"", at

    cdef Py_ssize_t read(self, const unsigned char *start, Py_ssize_t at, Py_ssize_t size, PlainSend *send) noexcept:
        """Read the frame at ``at`` if it is whole and a plain send; return where it ends, 0 if it is anything else."""
        cdef Py_ssize_t end, head_end
        cdef uint32_t mark
        if size - at < 8:
            return 0
        end = get_i32(start + at)
        if not 4 <= end <= self.most_frame_bytes - 4 or end > size - at - 4:
            return 0
        end += at + 4
        mark = <uint32_t>get_i32(start + at + 4)
        at += 8
        if mark & 0xFFFFFF > <uint32_t>min(end - at, <Py_ssize_t>MOST_HEADER_BYTES) or mark >> 24 > 1:
            return 0
        head_end = at + (mark & 0xFFFFFF)
        memset(&send.head, 0, sizeof(Head))
        send.is_binary = mark >> 24 == 1
        if send.is_binary:
            if not read_binary_head(start + at, start + head_end, &send.head):
                return 0
        elif not read_json_head(start + at, start + head_end, &send.head, self.scratch):
            return 0
        send.body = start + head_end
        send.body_size = end - head_end
        return end if is_plain_send(send) else 0

    cdef bint store(self, PlainSend *send, bytes born_host, bytes store_host) except -1:
        """Append the message, and write the answer. False, with nothing done, when Python is to look at it."""
        cdef _Staging staging
        cdef SendResult result
        cdef Origin origin
        cdef Given given
        cdef bytes text
        cdef Route route
        try:
            found = self.topic_of(&send.fields[F_TOPIC])
        except Exception:
            return False
        if found is None or send.queue_id >= <int>found[1]:
            return False
        text = kept_properties(&send.fields[F_PROPERTIES])
        if text is None:
            return False
        origin = origin_of(born_host, store_host, send.sys_flag & HAS_KEPT_FLAGS, send.born_timestamp,
                           max(0, send.reconsume_times))
        given.text, given.size = <const unsigned char *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
        given.more, given.more_size = <const unsigned char *>PyBytes_AS_STRING(self.added), PyBytes_GET_SIZE(self.added)
        if given.size > MAX_PROPERTIES_BYTES:
            return False
        try:
            route = self.appender.routes.to(<str>found[0], send.queue_id)
            staging = self.appender.begin(1)
            result = stage_received(self.appender, staging, route, send.queue_id, send.body, send.body_size, &given,
                                    send.flag, &origin)
            self.appender.finish(staging, route, route.number_of(send.queue_id), result)
        except Exception:
            return False  # nothing was written: the same happens again where it is answered
        self.sent += 1
        self.bytes_sent += send.body_size
        if not send.head.flag & FLAG_ONEWAY:
            self.answer(send, result, store_host)
        return True

    cdef tuple topic_of(self, const Text *name):
        """(name, number of queues) of a topic that plain sends may go to; None for another one."""
        cdef uint32_t changes = load32(self.shared.address + self.changes_at)
        cdef bytes key = PyBytes_FromStringAndSize(<const char *>name.at, name.size)
        cdef PyObject *found
        if changes != self.changes:
            self.topics.clear()
            self.changes = changes
        found = PyDict_GetItem(self.topics, key)
        if found != NULL:
            return <tuple>found
        if len(self.topics) > 10000:
            self.topics.clear()
        topic = key.decode()
        count = self.queues_of(topic)
        if not count:
            return None
        self.topics[key] = (topic, <int>count)
        return self.topics[key]

    cdef int answer(self, const PlainSend *send, SendResult result, bytes store_host) except -1:
        cdef unsigned char *start
        cdef unsigned char *at
        cdef Py_ssize_t head_size
        self.make_room(ANSWER_ROOM)
        if send.is_binary:
            at = self.put_binary(self.out + self.out_size + 8, send, result, store_host)
        else:
            at = self.put_json(self.out + self.out_size + 8, send, result, store_host)
        start = self.out + self.out_size
        head_size = at - start - 8
        put_i32(start, <int32_t>(head_size + 4))
        put_i32(start + 4, <int32_t>(head_size | <int>send.is_binary << 24))
        self.out_size = at - self.out
        return 0

    cdef int make_room(self, Py_ssize_t more) except -1:
        cdef void *grown
        for text, _ in self.template:
            more += PyBytes_GET_SIZE(<bytes>text)
        more += PyBytes_GET_SIZE(self.binary_tail)
        if self.out_size + more > self.out_capacity:
            grown = realloc(self.out, 2 * (self.out_size + more))
            if grown == NULL:
                raise MemoryError()
            self.out = <unsigned char *>grown
            self.out_capacity = 2 * (self.out_size + more)
        return 0

    cdef unsigned char *put_json(self, unsigned char *at, const PlainSend *send, SendResult result, bytes store_host) except NULL:
        cdef bytes text
        cdef int follows
        for text, follows in self.template:
            memcpy(at, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
            at += PyBytes_GET_SIZE(text)
            if follows == A_OPAQUE:
                at = put_number(at, send.head.opaque)
            elif follows == A_MESSAGE_ID:
                at = put_offset_id(at, store_host, result.commit_log_offset)
            elif follows == A_QUEUE_ID:
                at = put_number(at, send.queue_id)
            elif follows == A_QUEUE_OFFSET:
                at = put_number(at, result.queue_offset)
        return at

    cdef unsigned char *put_binary(self, unsigned char *at, const PlainSend *send, SendResult result, bytes store_host) noexcept:
        cdef unsigned char *start = at
        cdef unsigned char *fields = at + 21
        memset(at, 0, 21)
        memcpy(at + 2, PyBytes_AS_STRING(self.binary_fixed), 3)
        put_i32(at + 5, send.head.opaque)
        put_i32(at + 9, FLAG_RESPONSE)
        at = put_binary_name(fields, b"msgId")
        at = put_binary_size(at, put_offset_id(at + 4, store_host, result.commit_log_offset))
        at = put_binary_name(at, b"queueId")
        at = put_binary_size(at, put_number(at + 4, send.queue_id))
        at = put_binary_name(at, b"queueOffset")
        at = put_binary_size(at, put_number(at + 4, result.queue_offset))
        memcpy(at, PyBytes_AS_STRING(self.binary_tail), PyBytes_GET_SIZE(self.binary_tail))
        at += PyBytes_GET_SIZE(self.binary_tail)
        put_i32(start + 17, <int32_t>(at - fields))
        return at


cdef bint is_plain_send(PlainSend *send) noexcept nogil:
    """Read the fields of a request to send; False if it is another one, or if a field is unusual."""
    cdef int32_t ignored = 0
    cdef uint32_t seen
    if send.head.code == SEND_MESSAGE_V2:
        send.fields, seen = send.head.short_fields, send.head.short_seen
    elif send.head.code == SEND_MESSAGE:
        send.fields, seen = send.head.long_fields, send.head.long_seen
    else:
        return False
    if send.head.flag & FLAG_RESPONSE or seen & NEEDED_FIELDS != NEEDED_FIELDS:
        return False
    send.reconsume_times = 0
    return (int32_of_text(&send.fields[F_DEFAULT_QUEUES], &ignored)
            and int32_of_text(&send.fields[F_QUEUE_ID], &send.queue_id) and send.queue_id >= 0
            and int32_of_text(&send.fields[F_SYS_FLAG], &send.sys_flag)
            and number_of_text(&send.fields[F_BORN_TIMESTAMP], &send.born_timestamp)
            and int32_of_text(&send.fields[F_FLAG], &send.flag)
            and (send.fields[F_RECONSUME_TIMES].size == 0
                 or int32_of_text(&send.fields[F_RECONSUME_TIMES], &send.reconsume_times))
            and (send.fields[F_MOST_RECONSUME_TIMES].size == 0
                 or int32_of_text(&send.fields[F_MOST_RECONSUME_TIMES], &ignored))
            and (send.fields[F_BATCH].size == 0 or is_text(&send.fields[F_BATCH], "false", 5)
                 or is_text(&send.fields[F_BATCH], "0", 1)))


cdef bytes kept_properties(const Text *properties):
    """The properties but for WAIT; None if one of them is special, or there is anything unusual about them."""
    cdef const unsigned char *end = properties.at + properties.size
    cdef const unsigned char *at = properties.at
    cdef const unsigned char *stop
    cdef Text[MOST_PAIRS] names
    cdef Text wait
    cdef int count = 0
    wait.size = 0
    wait.at = NULL
    while at < end:
        stop = <const unsigned char *>memchr(at, 2, end - at)
        if stop == NULL:
            stop = end
        if count == MOST_PAIRS or not is_plain_pair(at, stop - at, names, count):
            return None
        if is_text(&names[count], "WAIT", 4):
            wait.at, wait.size = at, min(stop + 1, end) - at
        count += 1
        at = stop + 1
    if wait.at == NULL:
        return PyBytes_FromStringAndSize(<const char *>properties.at, properties.size)
    return (properties.at[:wait.at - properties.at] + wait.at[wait.size:end - wait.at])


cdef bint is_plain_pair(const unsigned char *at, Py_ssize_t size, Text *names, int count) noexcept nogil:
    """Whether a property is whole, not special, and not there before; its name is noted."""
    cdef const unsigned char *separator = <const unsigned char *>memchr(at, 1, size)
    cdef int number
    if separator == NULL or separator == at or separator == at + size - 1:
        return False
    names[count].at, names[count].size = at, separator - at
    for number in range(11):
        if size >= SPECIAL[number].size and memcmp(at, SPECIAL[number].text, SPECIAL[number].size) == 0:
            return False
    for number in range(count):
        if is_text(&names[number], <const char *>at, names[count].size):
            return False
    return True


cdef bytes binary_pair(str name, str value):
    cdef bytes key = name.encode()
    cdef bytes text = value.encode()
    return len(key).to_bytes(2, "big") + key + len(text).to_bytes(4, "big") + text


cdef unsigned char *put_binary_name(unsigned char *at, bytes name) noexcept:
    put_i16(at, <int>PyBytes_GET_SIZE(name))
    memcpy(at + 2, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
    return at + 2 + PyBytes_GET_SIZE(name)


cdef unsigned char *put_binary_size(unsigned char *at, unsigned char *end) noexcept nogil:
    """Write the size of a value that stands 4 bytes behind ``at``; return its end."""
    put_i32(at, <int32_t>(end - at - 4))
    return end


cdef unsigned char *put_number(unsigned char *at, int64_t number) noexcept nogil:
    cdef unsigned char[20] digits
    cdef uint64_t left = <uint64_t>number
    cdef int count = 0
    if number < 0:
        at[0] = 45
        at += 1
        left = 0 - left
    while count == 0 or left:
        digits[count] = <unsigned char>(48 + left % 10)
        left = left // 10
        count += 1
    while count:
        count -= 1
        at[0] = digits[count]
        at += 1
    return at


cdef unsigned char *put_offset_id(unsigned char *at, bytes store_host, uint64_t commit_log_offset) noexcept:
    cdef Py_ssize_t number
    for number in range(PyBytes_GET_SIZE(store_host)):
        put_hex(at, <unsigned char>PyBytes_AS_STRING(store_host)[number], 2)
        at += 2
    put_hex(at, commit_log_offset, 16)
    return at + 16
