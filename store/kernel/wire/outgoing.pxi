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


def encode_batch(list messages not None, list extras not None):
    cdef Message message
    cdef bytes properties, body
    cdef unsigned char head[INNER_HEAD_SIZE]
    cdef unsigned char size[2]
    cdef list parts = []
    check_messages(messages)
    if len(extras) != len(messages):
        raise ValueError(f"{len(extras)} further properties for {len(messages)} messages")
    for message, extra in zip(messages, extras):
        if message.sys_flag:
            raise MessageRejected("a message whose body is compressed cannot be part of a batch for a broker: send it alone")
        body = <bytes?>message.body
        properties = properties_of(message, extra)
        memset(head, 0, INNER_HEAD_SIZE)
        put_i32(head, <int32_t>(INNER_HEAD_SIZE + PyBytes_GET_SIZE(body) + 2 + PyBytes_GET_SIZE(properties)))
        put_i32(head + INNER_FLAG, message.flag)
        put_i32(head + INNER_BODY_SIZE, <int32_t>PyBytes_GET_SIZE(body))
        put_i16(size, <int>PyBytes_GET_SIZE(properties))
        parts += [head[:INNER_HEAD_SIZE], body, size[:2], properties]
    return b"".join(parts)
