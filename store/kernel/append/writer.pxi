# --- the record writer: messages as records in memory -----------------------------------------------------------------

@cython.final
cdef class _RecordWriter:
    """Encodes the messages of one process into a ``_Staging``: whole but for offsets, store timestamp and CRC.

    ``month(ms)`` returns begin and end of the month, in which the times of unique keys count from the begin.
    """

    cdef object encode_body             # turns a body that is not ``bytes`` into bytes
    cdef object month
    cdef Py_ssize_t max_body_bytes
    cdef unsigned char born_host[8]
    cdef unsigned char store_host[8]
    cdef unsigned char unique_prefix[20]
    cdef uint64_t month_start
    cdef uint64_t month_end
    cdef unsigned int counter

    def __cinit__(self, object encode_body, object month, Py_ssize_t max_body_bytes, bytes born_host not None,
                  bytes store_host not None, bytes unique_prefix not None):
        cdef bytes prefix = unique_prefix.hex().upper().encode()
        if len(born_host) != 8 or len(store_host) != 8 or len(unique_prefix) != 10:
            raise ValueError("hosts are 4 + 4 bytes, the prefix of unique keys 10")
        self.encode_body = encode_body
        self.month = month
        self.max_body_bytes = max_body_bytes
        memcpy(self.born_host, PyBytes_AS_STRING(born_host), 8)
        memcpy(self.store_host, PyBytes_AS_STRING(store_host), 8)
        memcpy(self.unique_prefix, PyBytes_AS_STRING(prefix), 20)
        self.counter = int.from_bytes(os.urandom(2), "little")

    cdef int stage(self, _Staging staging, Message message, Route route, int queue_id, str sharding_key,
                   SendResult result) except -1:
        """Write one record, and its unique key into ``result``."""
        cdef int64_t tags_code = 0
        cdef int64_t now = staging.section.now
        cdef bytes body = self.body_of(message)
        cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(route.name)
        cdef Py_ssize_t properties_size
        cdef unsigned char *start = staging.reserve(
            RECORD_FIXED_SIZE + PyBytes_GET_SIZE(body) + topic_size + 2 * MAX_PROPERTIES_BYTES)
        cdef unsigned char *at = put_head(
            start, queue_id, now, self.born_host, self.store_host, <const unsigned char *>PyBytes_AS_STRING(body),
            PyBytes_GET_SIZE(body), PyBytes_AS_STRING(route.name), topic_size)
        put_i32(start + R_FLAG, message.flag)
        put_i32(start + R_SYS_FLAG, message.sys_flag)
        properties_size = self.put_properties(at + 2, message, sharding_key, now, result, &tags_code)
        put_i16(at, <int>properties_size)
        at += 2 + properties_size
        put_i32(start, <int32_t>(at - start))
        staging.note(<int32_t>(at - start), tags_code)
        return 0

    cdef int stage_operation(self, _Staging staging, Route route, ReceivedMessage half) except -1:
        """Write the record that says that a half message is decided (TransactionalMessageBridge.makeOpMessageInner)."""
        cdef bytes body = b"%d" % half.queue_offset
        cdef bytes properties = b"WAIT\x01true\x02TAGS\x01d\x02"
        cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body)
        cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(route.name)
        cdef Py_ssize_t properties_size = PyBytes_GET_SIZE(properties)
        cdef unsigned char *start = staging.reserve(
            RECORD_FIXED_SIZE + body_size + topic_size + properties_size + CRC_PROPERTY_SIZE)
        cdef unsigned char *at = put_head(
            start, half.queue_id, staging.section.now, self.store_host, self.store_host,
            <const unsigned char *>PyBytes_AS_STRING(body), body_size, PyBytes_AS_STRING(route.name), topic_size)
        memcpy(at + 2, PyBytes_AS_STRING(properties), properties_size)
        finish_record(staging, at + 2 + properties_size, properties_size + CRC_PROPERTY_SIZE)
        return 0

    cdef bytes stage_inner(self, _Staging staging, list batch, str sharding_key, list results, int64_t most_bytes):
        """Return the messages of a batch one behind the other, as a batch has them, with unique keys in a row."""
        cdef int64_t now = staging.section.now
        cdef unsigned int counter = self.counter + 1
        cdef Py_ssize_t used = 0
        cdef Message message
        cdef SendResult result
        cdef unsigned char key[32]
        self.counter += <unsigned int>len(batch)
        self.put_unique_key(key, now)
        for message in batch:
            result = SendResult.__new__(SendResult)
            memcpy(result.unique_key, key, 28)
            put_hex(<unsigned char *>result.unique_key + 28, counter, 4)
            counter += 1
            results.append(result)
            used += self.put_inner(staging, message, sharding_key, result)
            staging.section.plan.size = used
            if used > most_bytes:
                raise BatchTooLarge(
                    f"a batch of more than {most_bytes} bytes (max_opened_body_bytes): no consumer could open it; send a "
                    "smaller batch")
        staging.section.plan.size = 0
        return PyBytes_FromStringAndSize(<char *>staging.section.staged, used)

    cdef Py_ssize_t put_inner(self, _Staging staging, Message message, str sharding_key, SendResult result) except -1:
        """Write one message of a batch behind the others; return its size."""
        cdef bytes body = self.body_of(message)
        cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body)
        cdef Py_ssize_t size = INNER_HEAD_SIZE + body_size + 2
        cdef Py_ssize_t properties_size
        cdef int64_t tags_code = 0
        cdef unsigned char *at = staging.reserve(size + 2 * MAX_PROPERTIES_BYTES)
        memset(at, 0, INNER_HEAD_SIZE)
        put_i32(at + INNER_FLAG, message.flag)
        put_i32(at + INNER_BODY_SIZE, <int32_t>body_size)
        memcpy(at + INNER_HEAD_SIZE, PyBytes_AS_STRING(body), body_size)
        properties_size = self.put_properties(at + size, message, sharding_key, staging.section.now, result, &tags_code)
        properties_size -= CRC_PROPERTY_SIZE
        put_i16(at + size - 2, <int>properties_size)
        put_i32(at, <int32_t>(size + properties_size))
        return size + properties_size

    cdef bytes body_of(self, Message message):
        """The body as bytes. Raises BodyTooLarge."""
        cdef object body = message.body
        if type(body) is not bytes:
            body = self.encode_body(body)
        if PyBytes_GET_SIZE(<bytes?>body) > self.max_body_bytes:
            raise BodyTooLarge(
                f"a body of {PyBytes_GET_SIZE(body)} bytes is over the limit of {self.max_body_bytes} (max_body_bytes): "
                "split it, or store the data elsewhere and send a reference")
        return <bytes>body

    cdef Py_ssize_t put_properties(self, unsigned char *at, Message message, str sharding_key, int64_t now,
                                   SendResult result, int64_t *tags_code) except -1:
        """Write the properties, with room for the CRC behind them; return their size, that room included."""
        cdef unsigned char *start = at
        cdef Py_ssize_t used = CRC_PROPERTY_SIZE + UNIQUE_PROPERTY_SIZE
        cdef Py_ssize_t size = 0
        cdef const char *text
        at = put_given(at, message, &used, tags_code)
        if sharding_key is not None:
            text = text_of(sharding_key, "sharding key", False, &size)
            if size == 0:
                raise MessageRejected("sharding key '': an empty one would come back as None: leave it out, or give None")
            at = put_counted(at, message, N_SHARDING_KEY, text, size, &used)
        if result.unique_key[0] == 0:
            self.put_unique_key(<unsigned char *>result.unique_key, now)
        at = put_property(at, N_UNIQ_KEY, result.unique_key, 32)
        return at - start + CRC_PROPERTY_SIZE

    cdef int put_unique_key(self, unsigned char *at, int64_t now) except -1:
        """MessageClientIDSetter: address, process, time within the month, counter; the process part is random here."""
        if not self.month_start <= <uint64_t>now < self.month_end:
            self.month_start, self.month_end = self.month(now)
        memcpy(at, self.unique_prefix, 20)
        put_hex(at + 20, <uint64_t>now - self.month_start, 8)
        self.counter += 1
        put_hex(at + 28, self.counter, 4)
        return 0


cdef unsigned char *put_given(unsigned char *at, Message message, Py_ssize_t *used, int64_t *tags_code) except NULL:
    """Write the properties that the application gave: KEYS, TAGS and its own."""
    cdef Py_ssize_t size = 0
    cdef Name name
    cdef const char *text
    if message.keys:
        at = put_key_list(at, message, used)
    if message.tags:
        text = text_of(message.tags, "tags", False, &size)
        tags_code[0] = hash_utf8(<const unsigned char *>text, size)
        at = put_counted(at, message, N_TAGS, text, size, used)
    if message.properties:
        for key, value in message.properties.items():
            if key in RESERVED_PROPERTIES:
                raise MessageRejected(f"property {key!r} belongs to the queue itself: choose another name")
            name.text = text_of(text_in(key, "property name"), "property name", False, &name.size)
            text = text_of(value_in(key, value), "property value", False, &size)
            if name.size == 0 or size == 0:
                raise MessageRejected(f"property {key!r}: {value!r}: RocketMQ drops empty names and values")
            at = put_counted(at, message, name, text, size, used)
    return at


cdef inline str text_in(object value, str what):
    """The value, which has to be a text. Raises TypeError, which names it."""
    if type(value) is not str and not isinstance(value, str):
        raise TypeError(f"{what} {value!r} is not a str but {type(value).__name__}: give {str(value)!r}")
    return <str>value


cdef inline str value_in(object name, object value):
    """The value of a property, which has to be a text. Raises TypeError, which names the property."""
    if type(value) is not str and not isinstance(value, str):
        raise TypeError(f"properties: {name!r}: {value!r} is not a str but {type(value).__name__}: give {str(value)!r}")
    return <str>value


cdef unsigned char *put_key_list(unsigned char *at, Message message, Py_ssize_t *used) except NULL:
    """Write KEYS: every key, with spaces between."""
    cdef Py_ssize_t size = 0
    cdef const char *text
    memcpy(at, N_KEYS.text, N_KEYS.size)
    at[N_KEYS.size] = 1
    at += N_KEYS.size + 1
    used[0] += N_KEYS.size + 1
    for key in message.keys:
        text = text_of(text_in(key, "key"), "key", True, &size)
        count_used(used, size + 1, message)
        memcpy(at, text, size)
        at[size] = 32
        at += size + 1
    (at - 1)[0] = 2
    return at


cdef unsigned char *put_counted(unsigned char *at, Message message, Name name, const char *text, Py_ssize_t size,
                                Py_ssize_t *used) except NULL:
    """Write a property, if all of them together are not too long with it."""
    count_used(used, name.size + size + 2, message)
    return put_property(at, name, text, size)


cdef inline int count_used(Py_ssize_t *used, Py_ssize_t size, Message message) except -1:
    used[0] += size
    if used[0] > MAX_SENT_PROPERTIES_BYTES:
        raise PropertiesTooLarge(
            f"tags, keys and properties of a message for topic {message.topic!r} take more than {MAX_SENT_PROPERTIES_BYTES} "
            "bytes on disk: shorten them")
    return 0
