# --- copies: records that are staged again, for another queue ---------------------------------------------------------

cdef enum:
    MOST_ADDED = 128              # bytes that delivery and rolls add to the properties of a message that waits


cdef int stage_copy(_Staging staging, ReceivedMessage message, Route route, int queue_id, int reconsume_times) except -1:
    """Write a record up to its properties: all of ``message`` but its queue, its attempts and its transaction."""
    cdef Py_ssize_t kept = message.frame.body_at + message.frame.body_size
    cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(route.name)
    cdef unsigned char *start = staging.reserve(kept + 3 + topic_size + 2 * MAX_PROPERTIES_BYTES)
    cdef unsigned char *at = start + kept
    memcpy(start, message.at, kept)
    put_i32(start + R_QUEUE_ID, queue_id)
    put_i32(start + reconsume_times_at(start), reconsume_times)
    put_i64(start + prepared_offset_at(start), 0)
    at[0] = <unsigned char>topic_size
    memcpy(at + 1, PyBytes_AS_STRING(route.name), topic_size)
    staging.properties_at = kept + 3 + topic_size
    return 0


cdef int copy_properties(_Staging staging, object properties, str topic) except -1:
    """Write the properties given, and finish the record."""
    cdef Py_ssize_t used = CRC_PROPERTY_SIZE
    cdef Py_ssize_t size = 0
    cdef Name name
    cdef const char *text
    cdef unsigned char *at = staging.last() + staging.properties_at
    for key, value in properties.items():
        name.text = text_of(<str?>key, "property name", False, &name.size)
        text = kept_value(<str?>value, &size)
        if name.size == 0 or size == 0:
            raise MessageRejected(f"property {key!r}: {value!r}: RocketMQ drops empty names and values")
        used += name.size + size + 2
        if used > MAX_PROPERTIES_BYTES:
            raise PropertiesTooLarge(
                f"properties of a copy for topic {topic!r} take more than {MAX_PROPERTIES_BYTES} bytes on disk")
        at = put_property(at, name, text, size)
    finish_record(staging, at, used)
    return 0


cdef const char *kept_value(str text, Py_ssize_t *size) except NULL:
    """UTF-8 of a value that a copy keeps. 0x01 may stand in it: a pair ends at 0x02, and its first 0x01 ends the name."""
    cdef const char *at = PyUnicode_AsUTF8AndSize(text, size)
    if memchr(at, 2, size[0]) != NULL:
        raise MessageRejected(f"property value {text[:80]!r} holds byte 0x02, which separates properties on disk: remove it")
    return at


cdef int keep_properties(_Staging staging, ReceivedMessage message) except -1:
    """Write the properties of ``message`` byte for byte, and finish the record."""
    cdef const unsigned char *properties = message.at + message.frame.properties_at
    cdef Py_ssize_t size = message.frame.properties_size
    cdef unsigned char *at = staging.last() + staging.properties_at
    if has_our_crc(message.at, &message.frame):
        size -= CRC_PROPERTY_SIZE
    if size + 1 + CRC_PROPERTY_SIZE > MAX_PROPERTIES_BYTES:  # a broker's, without room for the CRC
        kept = {name: value for name, value in message.properties.items()
                if name not in ("DELAY", "REAL_TOPIC", "REAL_QID")}
        return copy_properties(staging, kept, message.topic)
    memcpy(at, properties, size)
    if size and at[size - 1] != 2:
        at[size] = 2
        size += 1
    finish_record(staging, at + size, size + CRC_PROPERTY_SIZE)
    return 0


cdef void finish_record(_Staging staging, unsigned char *end, Py_ssize_t properties_size) noexcept:
    """Enter the sizes of the record that is being staged; ``end`` is behind its properties but for the CRC."""
    cdef unsigned char *start = staging.last()
    cdef Py_ssize_t total = end + CRC_PROPERTY_SIZE - start
    cdef Frame frame
    put_i16(end + CRC_PROPERTY_SIZE - properties_size - 2, <int>properties_size)
    put_i32(start, <int32_t>total)
    put_crc_property(end, 0)  # earlier bytes in this memory could be taken for a tag
    frame_of(start, total, get_i64(start + R_COMMIT_LOG_OFFSET), &frame)
    staging.note(<int32_t>total, tags_code_of(start, &frame))


cdef int redirect(_Staging staging, Route route, int queue_id, Route waiting, int waiting_id, dict more) except -1:
    """Let the record that was staged last wait in another queue.

    Its properties name its own queue, and hold ``more``.
    """
    more[b"REAL_TOPIC"] = route.name
    more[b"REAL_QID"] = b"%d" % queue_id
    return add_properties(staging, waiting, waiting_id, more)


cdef int add_properties(_Staging staging, Route route, int queue_id, dict more) except -1:
    """Let the record that was staged last go to another queue, with ``more`` in its properties.

    All properties are written anew, in the order of Java's HashMap.
    """
    cdef unsigned char *start = staging.take_back()
    cdef Frame frame
    frame_of(start, staging.section.sizes[staging.section.plan.count], get_i64(start + R_COMMIT_LOG_OFFSET), &frame)
    cdef dict pairs = pairs_in(start + frame.properties_at, frame.properties_size - CRC_PROPERTY_SIZE)
    pairs.update(more)
    cdef bytes text = b"".join([name + b"\x01" + pairs[name] + b"\x02" for name in order_of_hash_map(pairs)])
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text)
    cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(route.name)
    if size + CRC_PROPERTY_SIZE + (MOST_ADDED if route.topic == TIMER_TOPIC else 0) > MAX_PROPERTIES_BYTES:
        raise PropertiesTooLarge(
            f"a message for topic {pairs.get(b'REAL_TOPIC', b'').decode()!r} that waits in {route.topic!r} keeps topic and "
            f"queue in its properties, which then take more than {MAX_PROPERTIES_BYTES} bytes on disk: shorten tags, keys "
            "or properties")
    start = staging.reserve(frame.topic_at + 64 + MAX_PROPERTIES_BYTES)
    put_i32(start + R_QUEUE_ID, queue_id)
    (start + frame.topic_at - 1)[0] = <unsigned char>topic_size
    memcpy(start + frame.topic_at, PyBytes_AS_STRING(route.name), topic_size)
    start += frame.topic_at + topic_size + 2
    memcpy(start, PyBytes_AS_STRING(text), size)
    finish_record(staging, start + size, size + CRC_PROPERTY_SIZE)
    return 0


cdef dict pairs_in(const unsigned char *at, Py_ssize_t size):
    """The properties that stand at ``at``, as bytes by name; the last property of a name counts."""
    cdef dict pairs = {}
    for pair in at[:size].split(b"\x02"):
        if pair:
            name, _, value = pair.partition(b"\x01")
            pairs[name] = value
    return pairs
