# --- outgoing: a message as a producer sends it to a broker -----------------------------------------------------------

@cython.final
cdef class MessageIds:
    """Makes the ids of one process's messages."""

    cdef _RecordWriter writer

    def __init__(self, object month, bytes unique_prefix not None):
        self.writer = _RecordWriter(None, month, 0, bytes(8), bytes(8), unique_prefix)

    def next(self):
        cdef unsigned char key[32]
        self.writer.put_unique_key(key, wall_clock_ms())
        return key[:32].decode("ascii")


def encode_properties(Message message not None, extra=None):
    return properties_of(message, extra).decode()


cdef bytes properties_of(Message message, object extra):
    """The properties of a message: KEYS, TAGS, the application's, then ``extra``."""
    cdef bytes room = PyBytes_FromStringAndSize(NULL, 2 * MAX_PROPERTIES_BYTES)
    cdef unsigned char *start = <unsigned char *>PyBytes_AS_STRING(room)
    cdef unsigned char *at
    cdef Py_ssize_t used = 0
    cdef Py_ssize_t size = 0
    cdef int64_t tags_code = 0
    cdef Name name
    cdef const char *text
    at = put_given(start, message, &used, &tags_code)
    if extra is not None:
        for key, value in extra.items():
            name.text = text_of(<str?>key, "property name", False, &name.size)
            text = text_of(<str?>value, "property value", False, &size)
            if name.size and size:
                at = put_counted(at, message, name, text, size, &used)
    return PyBytes_FromStringAndSize(<char *>start, at - start)


def encode_each(list messages not None, list extras not None):
    check_messages(messages)
    if len(extras) != len(messages):
        raise ValueError(f"{len(extras)} further properties for {len(messages)} messages")
    return [
        b"" if (<Message>message).sys_flag else in_batch(<Message>message, extra)
        for message, extra in zip(messages, extras)
    ]


cdef bytes in_batch(Message message, object extra):
    """A message as it stands in the batch of a client."""
    cdef bytes body = <bytes?>message.body
    cdef bytes properties = properties_of(message, extra)
    cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body)
    cdef Py_ssize_t properties_size = PyBytes_GET_SIZE(properties)
    cdef Py_ssize_t size = INNER_HEAD_SIZE + body_size + 2 + properties_size
    cdef bytes encoded = PyBytes_FromStringAndSize(NULL, size)
    cdef unsigned char *at = <unsigned char *>PyBytes_AS_STRING(encoded)
    memset(at, 0, INNER_HEAD_SIZE)
    put_i32(at, <int32_t>size)
    put_i32(at + INNER_FLAG, message.flag)
    put_i32(at + INNER_BODY_SIZE, <int32_t>body_size)
    at += INNER_HEAD_SIZE
    memcpy(at, PyBytes_AS_STRING(body), body_size)
    put_i16(at + body_size, <int>properties_size)
    memcpy(at + body_size + 2, PyBytes_AS_STRING(properties), properties_size)
    return encoded


def offset_id_bytes(str text not None):
    return bytes_of_offset_id(text)


def sent_results(object queue, uint64_t queue_offset, list message_ids not None, list offset_message_ids not None):
    cdef list results = []
    cdef SendResult result
    cdef bytes place
    for message_id, offset_message_id in zip(message_ids, offset_message_ids, strict=True):
        place = bytes_of_offset_id(<str?>offset_message_id)
        result = SendResult.__new__(SendResult)
        result.queue = queue
        result.queue_offset = queue_offset
        result.commit_log_offset = <uint64_t>get_i64(
            <unsigned char *>PyBytes_AS_STRING(place) + PyBytes_GET_SIZE(place) - 8)
        result.commit_log_end = result.commit_log_offset
        result.offset_message_id = offset_message_id
        name_result(result, <str?>message_id)
        results.append(result)
        queue_offset += 1
    return results


cdef bytes bytes_of_offset_id(str text):
    cdef bytes read
    try:
        read = bytes.fromhex(text)
    except ValueError:
        read = b""
    if PyBytes_GET_SIZE(read) not in (16, 28) or 2 * PyBytes_GET_SIZE(read) != len(text):  # there may be spaces in it
        raise ValueError(f"{text[:80]!r} is not an offset message id: it has 32 or 56 hexadecimal digits")
    return read
