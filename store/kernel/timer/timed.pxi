# --- the timer: what ends the wait of a message -----------------------------------------------------------------------

def deliver_timed(Appender appender not None, ReceivedMessage message not None, str topic not None, int queue_id):
    return end_wait(appender, message, appender.routes.to(topic, queue_id), queue_id, False)


def roll_timed(Appender appender not None, ReceivedMessage message not None):
    return end_wait(appender, message, appender.routes.waiting(TIMER_TOPIC), 0, True)


cdef SendResult end_wait(Appender appender, ReceivedMessage message, Route route, int queue_id, bint is_roll):
    """Append a message of the timer again, to its queue or at the end of the timer, and count it as done."""
    cdef int number = route.number_of(queue_id) if is_roll else route.landing(queue_id, message)
    cdef _Staging staging = appender.begin(1)
    stage_copy(staging, message, route, route.queue_ids[number], message.delivery_attempt - 1)
    put_timer_properties(staging, message, is_roll)
    count_as_done(appender, staging, message)
    if is_roll:
        staging.section.plan.timer_room = appender.committer.timer_bits
        staging.section.plan.makes_room = True  # retention waits for it
    return appender.finish(staging, route, number, named_as(message))


def cancel_timed(Appender appender not None, ReceivedMessage message not None):
    cdef Route timer = appender.routes.waiting(TIMER_TOPIC)
    cdef _Staging staging = appender.begin(1)
    cdef SendResult result = SendResult.__new__(SendResult)
    appender.records.stage(staging, Message(TIMER_TOPIC, b""), timer, 0, None, result)
    kept = message.some_properties((b"REAL_TOPIC", b"REAL_QID", b"TIMER_DELIVER_MS", b"TIMER_OUT_MS"))
    more = {name.encode(): value.encode() for name, value in kept.items()}
    more[b"TIMER_DEL_UNIQKEY"] = message.message_id.encode()
    more[b"TIMER_QUEUE_OFFSET"] = b"%d" % message.queue_offset
    add_properties(staging, timer, 0, more)
    count_as_done(appender, staging, message)
    staging.section.plan.timer_room = appender.committer.timer_bits
    return appender.finish(staging, timer, timer.number_of(0), result)


cdef int count_as_done(Appender appender, _Staging staging, ReceivedMessage message) except -1:
    """Let the append also set the bit of a message of the timer, unless that message is done."""
    cdef uint64_t number = <uint64_t>get_i64(message.at + R_QUEUE_OFFSET)
    cdef uint64_t at = number % appender.committer.timer_bits
    staging.section.plan.done_at = appender.committer.timer_at + TIMER_HEADER_SIZE + (at >> 6) * 8
    staging.section.plan.done_bit = <uint64_t>1 << (at & 63)
    staging.section.plan.done_offset = number
    return 0


cdef int put_timer_properties(_Staging staging, ReceivedMessage message, bint is_roll) except -1:
    """Write the properties of a message of the timer, and its queue offset there; finish the record."""
    cdef const unsigned char *at = message.at + message.frame.properties_at
    cdef const unsigned char *end = at + message.frame.properties_size
    cdef const unsigned char *stop
    cdef unsigned char *start = staging.last() + staging.properties_at
    cdef unsigned char *target = start
    cdef bint is_long = message.frame.properties_size + MOST_ADDED > MAX_PROPERTIES_BYTES
    cdef bytes number = b"%d" % message.queue_offset
    while at < end:
        stop = <const unsigned char *>memchr(at, 2, end - at)
        if stop == NULL:
            stop = end
        if stop > at and not is_left_out(at, stop - at, is_roll, is_long):
            memcpy(target, at, stop - at)
            target[stop - at] = 2
            target += stop - at + 1
        at = stop + 1
    target = put_text(target, N_TIMER_QUEUE_OFFSET, number)
    if is_roll:
        target = put_text(target, N_TIMER_ROLL_TIMES, b"%d" % (rolls_of(message) + 1))
    if target - start + CRC_PROPERTY_SIZE > MAX_PROPERTIES_BYTES:
        raise PropertiesTooLarge(
            f"properties of message {message.queue_offset} of {TIMER_TOPIC} take more than {MAX_PROPERTIES_BYTES} bytes")
    finish_record(staging, target, target - start + CRC_PROPERTY_SIZE)
    return 0


cdef bint is_left_out(const unsigned char *pair, Py_ssize_t size, bint is_roll, bint is_long) noexcept nogil:
    """Whether a message leaves a property behind when it leaves the timer; ``is_long``: there is no room for all."""
    if is_pair_of(pair, size, N_CRC) or is_pair_of(pair, size, N_TIMER_QUEUE_OFFSET):
        return True
    if is_roll:
        return is_pair_of(pair, size, N_TIMER_ROLL_TIMES)
    return is_long and (is_pair_of(pair, size, N_REAL_TOPIC) or is_pair_of(pair, size, N_REAL_QID)
                        or is_pair_of(pair, size, N_TIMER_OUT_MS) or is_pair_of(pair, size, N_TIMER_DELIVER_MS))


cdef int rolls_of(ReceivedMessage message) except -1:
    text = message.some_properties((b"TIMER_ROLL_TIMES",)).get("TIMER_ROLL_TIMES", "0")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def wait_ends(buffer, int64_t begin, int64_t stop):
    cdef _Range part = _Range(buffer, begin, begin, stop)
    cdef const unsigned char *record
    cdef const unsigned char *value
    cdef const unsigned char *key
    cdef Frame frame
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t key_size = 0
    cdef bint is_operation
    cdef list found = []
    while begin < part.stop:
        with nogil:
            begin, value = next_wait_end(part, begin, &frame, &size)
        if value == NULL:
            break
        record = part.at(begin)
        if parse(record, part.left(begin), begin, &frame) != FOUND_RECORD:
            break
        key = find_property(record + frame.properties_at, frame.properties_size, N_TIMER_DEL_UNIQKEY, &key_size)
        is_operation = key != NULL
        if key == NULL:
            key = find_property(record + frame.properties_at, frame.properties_size, N_UNIQ_KEY, &key_size)
        found.append((
            begin, PyBytes_FromStringAndSize(<char *>value, size),
            None if key == NULL else PyBytes_FromStringAndSize(<char *>key, key_size),
            get_i64(record + R_QUEUE_OFFSET)
            if is_operation and is_timer_topic(record + frame.topic_at, frame.topic_size) else -1))
        begin += frame.size
    return begin, found


cdef (int64_t, const unsigned char *) next_wait_end(_Range part, int64_t offset, Frame *frame,
                                                    Py_ssize_t *size) noexcept nogil:
    """Offset and TIMER_QUEUE_OFFSET of the next record that has this property; NULL at the end of the records."""
    cdef const unsigned char *record
    cdef const unsigned char *value
    while offset < part.stop:
        record = part.at(offset)
        if frame_of(record, part.left(offset), offset, frame) != FOUND_RECORD:
            return offset, NULL
        value = find_property(record + frame.properties_at, frame.properties_size, N_TIMER_QUEUE_OFFSET, size)
        if value != NULL:
            return offset, value
        offset += frame.size
    return offset, NULL
