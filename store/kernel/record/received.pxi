# --- what is received: a record, decoded field by field ---------------------------------------------------------------

from contextvars import ContextVar as _ContextVar

cdef int64_t DEFAULT_LIMIT = _DEFAULT_LIMIT

handling = _ContextVar("rmqclient_handling", default=None)


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
    cdef bint delivered                 # to a group: ``topic`` is then where a retry failed, or what a half message is for
    cdef dict parsed                    # properties
    cdef bytes opened                   # a compressed body, from its first use until the message is acknowledged
    cdef readonly int64_t max_opened_body_bytes
    cdef bytearray rest                 # shared by a batch: in four bytes how many messages are unfinished, then a byte for each
    cdef readonly int inner_number
    cdef readonly object unopened

    @property
    def topic(self):
        """Its topic. A message from a retry topic shows the topic where it first failed [RETRY_TOPIC]."""
        cdef const unsigned char *at = self.at + self.frame.topic_at
        cdef str origin = None
        if self.delivered and self.frame.topic_size > T_RETRY_PREFIX.size and memcmp(
                at, T_RETRY_PREFIX.text, T_RETRY_PREFIX.size) == 0:
            origin = self.property_of(N_RETRY_TOPIC)
        elif self.delivered and is_name(at, self.frame.topic_size, T_HALF):
            origin = self.property_of(N_REAL_TOPIC)
        return origin or PyUnicode_DecodeUTF8(<char *>at, self.frame.topic_size, NULL)

    @property
    def queue_id(self):
        """The number of its queue in its topic."""
        return get_i32(self.at + R_QUEUE_ID)

    @property
    def queue_offset(self):
        """Its number in its queue, from 0."""
        return get_i64(self.at + R_QUEUE_OFFSET)

    @property
    def commit_log_offset(self):
        """The byte of the log at which its record begins."""
        return get_i64(self.at + R_COMMIT_LOG_OFFSET)

    @property
    def size(self):
        """Bytes of the whole record."""
        return self.frame.size

    @property
    def body(self):
        """Its body as it was sent. A compressed body is opened once, and kept until the message is acknowledged.

        Raises BodyUnreadable when the body cannot be opened, or opens to more than :attr:`max_opened_body_bytes`;
        NotInstalled when the package that opens it is missing.
        """
        cdef bytes opened
        if get_i32(self.at + R_SYS_FLAG) & SYS_FLAG_COMPRESSED:
            opened = self.opened
            if opened is None:
                opened = self.opened = self.open_body()
            return opened
        return PyBytes_FromStringAndSize(<char *>self.at + self.frame.body_at, self.frame.body_size)

    @property
    def stored_body(self):
        """The bytes of its body in the record: compressed, if the body is."""
        return PyBytes_FromStringAndSize(<char *>self.at + self.frame.body_at, self.frame.body_size)

    def open_body(self, int64_t limit=0x7FFFFFFFFFFFFFFF):
        """Return :attr:`body` without keeping it; at most ``limit`` bytes. Raises what :attr:`body` raises."""
        return open_body(self.stored_body, self.sys_flag, min(limit, self.max_opened_body_bytes))

    @property
    def flag(self):
        """What the application gave as ``flag``; RocketMQ only keeps it."""
        return get_i32(self.at + R_FLAG)

    @property
    def sys_flag(self):
        """RocketMQ's bits: whether the body is compressed, and what it is of a transaction."""
        return get_i32(self.at + R_SYS_FLAG)

    @property
    def born_timestamp(self):
        """ms since 1970, by the producer's clock."""
        return get_i64(self.at + R_BORN_TIMESTAMP)

    @property
    def store_timestamp(self):
        """ms since 1970, when it was stored."""
        return store_timestamp_of(self.at)

    @property
    def reconsume_times(self):
        """Delivery attempts before this record was stored."""
        return attempt_of(self.at) - 1

    @property
    def prepared_transaction_offset(self):
        """Commit log offset of the half message that this one was committed from; 0 without a transaction."""
        return get_i64(self.at + prepared_offset_at(self.at))

    @property
    def tags(self):
        """Its tag; None without one."""
        return self.property_of(N_TAGS)

    @property
    def keys(self):
        text = self.property_of(N_KEYS)
        return () if text is None else tuple([key for key in text.split(" ") if key])

    @property
    def sharding_key(self):
        return self.property_of(N_SHARDING_KEY)

    @property
    def message_id(self):
        """The same as ``SendResult.message_id``; for a message without such an id, :attr:`offset_message_id`."""
        unique = self.property_of(N_UNIQ_KEY)
        return self.offset_message_id if unique is None else unique

    @property
    def offset_message_id(self):
        """Store host and commit log offset, as RocketMQ's ``offsetMsgId``."""
        cdef int host_at = store_host_at(self.at)
        host = self.at[host_at:host_at + store_host_size(self.at)]
        return (host + self.at[R_COMMIT_LOG_OFFSET:R_COMMIT_LOG_OFFSET + 8]).hex().upper()

    @property
    def properties(self):
        """Every property on disk but the CRC."""
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
        """Return the named ones of :attr:`properties`, without decoding the others."""
        cdef dict found = {}
        cdef const unsigned char *at
        cdef const unsigned char *value
        cdef const unsigned char *end = self.at + self.frame.properties_at + self.frame.properties_size
        cdef Py_ssize_t size = 0
        for name in names:
            at = self.at + self.frame.properties_at
            while True:  # the last property of a name counts
                value = find_property(at, end - at, name_of(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)), &size)
                if value == NULL:
                    break
                if size:
                    found[name.decode()] = PyUnicode_DecodeUTF8(<char *>value, size, "replace")
                at = value + size
        return found

    @property
    def steps(self):
        """The durable steps of the handler that was called with this message; the first read looks them up.

        Raises HandlerError outside of the handler's call and for handlers that have no steps, NotOnCluster, StepsLost,
        and as a read of the store.
        """
        running = handling.get()
        if running is None:
            raise HandlerError("message.steps is for the handler that is called with the message, while it runs")
        return running.steps_of(self)

    @property
    def tags_code(self):
        """The last field of its consume queue entry: the Java hash of its tag, 0 without a tag.

        For a message that waits in SCHEDULE_TOPIC_XXXX, and for most in the timer, the time in ms at which it is due.
        """
        return tags_code_of(self.at, &self.frame)

    cdef str property_of(self, Name name):
        cdef Py_ssize_t size = 0
        cdef const unsigned char *value = find_property(
            self.at + self.frame.properties_at, self.frame.properties_size, name, &size)
        return None if value == NULL else PyUnicode_DecodeUTF8(<char *>value, size, "replace")

    def redelivered(self, int attempt=0):
        """Return the same message with its next delivery attempt, or with ``attempt`` if that is not 0."""
        cdef ReceivedMessage same = _again(self.record(), self.queue, attempt or self.delivery_attempt + 1,
                                           self.delivered, self.max_opened_body_bytes)
        same.rest, same.inner_number, same.unopened = self.rest, self.inner_number, self.unopened
        return same

    def check_opened(self):
        """Raise :attr:`unopened` unless it is None."""
        if self.unopened is not None:
            raise type(self.unopened)(*self.unopened.args)  # a new one: an exception collects the frames it passes

    def as_delivered(self):
        """Return the same message as a handler gets it: a retry and a half message show the topic they are for."""
        return _again(self.record(), self.queue, self.delivery_attempt, True, self.max_opened_body_bytes)

    def limited_to(self, int64_t max_opened_body_bytes):
        """Set :attr:`max_opened_body_bytes`, and return this message."""
        self.max_opened_body_bytes = max_opened_body_bytes
        return self

    def record(self):
        """Return the bytes of the whole record."""
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
    cdef int found = FOUND_SHORT
    if PyBytes_GET_SIZE(record) >= RECORD_FIXED_SIZE:
        found = parse(at, PyBytes_GET_SIZE(record), get_i64(at + R_COMMIT_LOG_OFFSET), &frame)
        if found != FOUND_RECORD:
            found = parse_sent(at, PyBytes_GET_SIZE(record), &frame)
    if found != FOUND_RECORD:
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
        if found != FOUND_RECORD:
            return found
        record = PyBytes_FromStringAndSize(<char *>at, frame.size)
    finally:
        PyBuffer_Release(&view)
    # A hostile writer can change the bytes meanwhile: check the copy that is kept.
    at = <const unsigned char *>PyBytes_AS_STRING(record)
    found = parse(at, frame.size, commit_log_offset, &frame)
    return received(record, 0, &frame, queue, attempt_of(at), False) if found == FOUND_RECORD else found
