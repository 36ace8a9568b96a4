# --- pulled: the records in the body of an answer, one behind the other as in the commit log --------------------------

def pulled(bytes data not None, object queue, str broker_name not None, bint delivered, int64_t max_opened_body_bytes):
    cdef Py_ssize_t position = 0
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef const unsigned char *at
    cdef list messages = []
    cdef ReceivedMessage message
    cdef Frame frame
    cdef int found
    while position < size:
        at = <const unsigned char *>PyBytes_AS_STRING(data) + position
        found = parse_sent(at, size - position, &frame)
        if found != FOUND_RECORD:
            return messages, position, found
        message = received(data, position, &frame, queue, attempt_of(at), delivered)
        message.max_opened_body_bytes = max_opened_body_bytes
        if queue is None:
            message.queue = MessageQueue(topic_in(at, &frame), get_i32(at + R_QUEUE_ID), broker_name)
        if get_i32(at + R_SYS_FLAG) & SYS_FLAG_UNWRAPPED == SYS_FLAG_UNWRAPPED:
            messages += unwrapped(message)
        else:
            messages.append(message)
        position += frame.size
    return messages, position, FOUND_RECORD


cdef str topic_in(const unsigned char *at, const Frame *frame):
    return PyUnicode_DecodeUTF8(<char *>at + frame.topic_at, frame.topic_size, NULL)


cdef list unwrapped(ReceivedMessage batch):
    """The messages of a batch. Each has a queue offset of its own at a 5.x broker (MessageDecoder.decodeMessage).

    The batch itself, which then says why, when it cannot be opened.
    """
    cdef ReceivedMessage message
    cdef unsigned char *at
    cdef Py_ssize_t size
    try:
        messages = inner_messages(batch)
    except QueueError as error:
        batch.unopened = error.with_traceback(None)
        return [batch]
    for message in messages:
        at = <unsigned char *>message.at  # in memory that was made for these messages
        size = message.frame.size - CRC_PROPERTY_SIZE
        put_i64(at + R_QUEUE_OFFSET, get_i64(at + R_QUEUE_OFFSET) + message.inner_number)
        put_crc_property(at + size, rmq_crc32(0, at, size) & 0x7FFFFFFF)
        message.rest = None
        message.inner_number = 0
        message.max_opened_body_bytes = batch.max_opened_body_bytes
    return messages
