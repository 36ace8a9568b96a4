# --- incoming: messages that clients sent over the network, appended as their clients wrote them ----------------------

cdef enum:
    HOST_SIZE = 8                 # an IPv4 address and a port
    LONG_HOST_SIZE = 20           # an IPv6 address and a port
    SYS_FLAG_GIVEN = 0x70B        # compression, several tags, committed: what a client may say of a message in a queue


cdef struct Given:                # what the properties of a record are made of
    const unsigned char *text     # of the message
    Py_ssize_t size
    const unsigned char *more     # of its batch, behind it
    Py_ssize_t more_size


cdef struct Origin:               # what the messages of a request share
    const unsigned char *born_host
    int born_size
    const unsigned char *store_host
    int store_size
    int sys_flag
    int64_t born_timestamp
    int reconsume_times


def append_received(Appender appender not None, str topic not None, int queue_id, bytes body not None, properties, *,
                    int flag, int sys_flag, int64_t born_timestamp, bytes born_host not None, bytes store_host not None,
                    int reconsume_times=0, int delay_level=0, int64_t due_ms=0, bint half=False):
    cdef Origin origin = origin_of(born_host, store_host, sys_flag, born_timestamp, reconsume_times)
    cdef bytes text = text_given(properties)
    cdef Route route = appender.routes.to(topic, queue_id)
    cdef int number = route.number_of(queue_id)
    cdef _Staging staging
    cdef SendResult result
    cdef Given given
    check_wait(min(delay_level, LEVELS), due_ms)
    given.text, given.size = <const unsigned char *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
    given.more, given.more_size = NULL, 0
    staging = appender.begin(1)
    result = stage_received(appender, staging, route, queue_id, <const unsigned char *>PyBytes_AS_STRING(body),
                            PyBytes_GET_SIZE(body), &given, flag, &origin)
    if half:
        route, number = make_half(appender, staging, route, queue_id), 0
    elif delay_level or due_ms:
        delay_level = min(delay_level, LEVELS)
        route = appender.make_wait(staging, route, queue_id, delay_level, due_ms)
        number = route.number_of(max(0, delay_level - 1))
    appender.finish(staging, route, number, result)
    result.offset_message_id = offset_id(store_host, result.commit_log_offset)
    return result


def append_received_batch(Appender appender not None, str topic not None, int queue_id, bytes body not None, properties, *,
                          int sys_flag, int64_t born_timestamp, bytes born_host not None, bytes store_host not None,
                          int reconsume_times=0):
    cdef Origin origin = origin_of(born_host, store_host, sys_flag, born_timestamp, reconsume_times)
    cdef bytes more = without(text_given(properties), b"UNIQ_KEY\x01")
    cdef Route route = appender.routes.to(topic, queue_id)
    cdef int number = route.number_of(queue_id)
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(body)
    cdef int count = count_inner(at, PyBytes_GET_SIZE(body), appender.committer.entries_per_file)
    cdef _Staging staging = appender.begin(count)
    cdef Given given
    cdef Py_ssize_t body_size
    cdef list results = []
    cdef SendResult result
    given.more, given.more_size = <const unsigned char *>PyBytes_AS_STRING(more), PyBytes_GET_SIZE(more)
    for _ in range(count):
        body_size = get_i32(at + INNER_BODY_SIZE)
        given.text = at + INNER_HEAD_SIZE + body_size + 2
        given.size = get_i16(given.text - 2)
        check_text(given.text, given.size)
        results.append(stage_received(appender, staging, route, queue_id, at + INNER_HEAD_SIZE, body_size, &given,
                                      get_i32(at + INNER_FLAG), &origin))
        at += get_i32(at)
    appender.check_batch_size(staging)
    appender.committer.commit(staging, route.slots[number])
    place_results(results, route.queues[number], staging)
    appender.spare = staging
    for result in results:
        result.offset_message_id = offset_id(store_host, result.commit_log_offset)
    return results


cdef SendResult stage_received(Appender appender, _Staging staging, Route route, int queue_id, const unsigned char *body,
                               Py_ssize_t body_size, const Given *given, int flag, const Origin *origin):
    """Write one record, with the properties as they were given; return its result, which has its id."""
    cdef SendResult result = SendResult.__new__(SendResult)
    cdef unsigned char *start
    cdef unsigned char *properties
    cdef unsigned char *at
    if body_size > appender.records.max_body_bytes:
        raise BodyTooLarge(
            f"a body of {body_size} bytes is over the limit of {appender.records.max_body_bytes} (max_body_bytes): "
            "split it, or store the data elsewhere and send a reference")
    start = staging.reserve(RECORD_FIXED_SIZE + 2 * LONG_HOST_SIZE + body_size + PyBytes_GET_SIZE(route.name)
                            + given.size + given.more_size + 2 + UNIQUE_PROPERTY_SIZE + CRC_PROPERTY_SIZE)
    properties = put_received_head(start, queue_id, flag, origin, body, body_size, route.name) + 2
    at = put_received_properties(properties, given, route, result, appender.records, staging.section.now)
    finish_record(staging, at, at - properties + CRC_PROPERTY_SIZE)
    return result


cdef Origin origin_of(bytes born_host, bytes store_host, int sys_flag, int64_t born_timestamp, int reconsume_times) except *:
    """Where messages come from; the pointers hold as long as the hosts do. Raises ValueError."""
    cdef Origin origin
    for host in (born_host, store_host):
        if len(host) != HOST_SIZE and len(host) != LONG_HOST_SIZE:
            raise ValueError(f"a host of {len(host)} bytes: an address and a port have {HOST_SIZE} or {LONG_HOST_SIZE}")
    if reconsume_times < 0:
        raise ValueError(f"reconsume_times={reconsume_times}: it is 0 or more")
    origin.born_host = <const unsigned char *>PyBytes_AS_STRING(born_host)
    origin.born_size = <int>PyBytes_GET_SIZE(born_host)
    origin.store_host = <const unsigned char *>PyBytes_AS_STRING(store_host)
    origin.store_size = <int>PyBytes_GET_SIZE(store_host)
    origin.sys_flag = sys_flag & SYS_FLAG_GIVEN
    if sys_flag & SYS_FLAG_TRANSACTION != SYS_FLAG_COMMITTED:
        origin.sys_flag &= ~SYS_FLAG_TRANSACTION  # such a record would have no entry in its queue
    if origin.born_size == LONG_HOST_SIZE:
        origin.sys_flag |= SYS_FLAG_BORN_HOST_V6
    if origin.store_size == LONG_HOST_SIZE:
        origin.sys_flag |= SYS_FLAG_STORE_HOST_V6
    origin.born_timestamp = born_timestamp
    origin.reconsume_times = reconsume_times
    return origin


cdef unsigned char *put_received_head(unsigned char *start, int queue_id, int flag, const Origin *origin,
                                      const unsigned char *body, Py_ssize_t body_size, bytes topic) noexcept:
    """Write a record up to its topic; return where the size of its properties goes."""
    cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(topic)
    cdef unsigned char *at
    memset(start, 0, RECORD_HEADER_SIZE + 2 * (LONG_HOST_SIZE - HOST_SIZE))
    put_i32(start + R_MAGIC, RECORD_MAGIC)
    put_i32(start + R_QUEUE_ID, queue_id)
    put_i32(start + R_FLAG, flag)
    put_i32(start + R_SYS_FLAG, origin.sys_flag)
    put_i64(start + R_BORN_TIMESTAMP, origin.born_timestamp)
    memcpy(start + R_BORN_HOST, origin.born_host, origin.born_size)
    memcpy(start + store_host_at(start), origin.store_host, origin.store_size)
    put_i32(start + reconsume_times_at(start), origin.reconsume_times)
    at = start + R_BODY_SIZE + header_shift(start)
    put_i32(at, <int32_t>body_size)
    memcpy(at + 4, body, body_size)
    if body_size:
        put_i32(start + R_BODY_CRC, <int32_t>(rmq_crc32(0, body, body_size) & 0x7FFFFFFF))
    at += 4 + body_size
    at[0] = <unsigned char>topic_size
    memcpy(at + 1, PyBytes_AS_STRING(topic), topic_size)
    return at + 1 + topic_size


cdef unsigned char *put_received_properties(unsigned char *at, const Given *given, Route route, SendResult result,
                                            _RecordWriter records, int64_t now) except NULL:
    """Write the properties as they are, and a UNIQ_KEY if there is none; return where the CRC goes."""
    cdef unsigned char *start = at
    cdef const unsigned char *value
    cdef Py_ssize_t size = 0
    at = put_whole(at, given.text, given.size)
    at = put_whole(at, given.more, given.more_size)
    if route.compact and find_property(start, at - start, N_KEYS, &size) == NULL:
        raise MessageRejected(
            f"topic {route.topic!r} is compact: it keeps the latest message of each key, and this one has no key: "
            "give it one")
    value = find_property(start, at - start, N_UNIQ_KEY, &size)
    if value == NULL:
        records.put_unique_key(<unsigned char *>result.unique_key, now)
        at = put_property(at, N_UNIQ_KEY, result.unique_key, 32)
    elif size == 32:
        memcpy(result.unique_key, value, 32)
    else:
        result.foreign_key = PyUnicode_DecodeUTF8(<char *>value, size, "replace")
    if at - start + CRC_PROPERTY_SIZE > most_properties(route):
        raise PropertiesTooLarge(
            f"the properties of a message for topic {route.topic!r} take {at - start + CRC_PROPERTY_SIZE} bytes on disk, "
            f"and the limit is {most_properties(route)}: shorten them")
    return at


cdef inline Py_ssize_t most_properties(Route route) noexcept:
    """Bytes of properties on disk. A failed message that its client sends again has used of the room that was kept for it."""
    return MAX_PROPERTIES_BYTES if PyBytes_AS_STRING(route.name)[0] == b"%" else MAX_SENT_PROPERTIES_BYTES


cdef unsigned char *put_whole(unsigned char *at, const unsigned char *text, Py_ssize_t size) noexcept nogil:
    """Write properties, and the separator behind the last one, which clients may leave out."""
    if size:
        memcpy(at, text, size)
        if at[size - 1] != 2:
            at[size] = 2
            size += 1
    return at + size


cdef Route make_half(Appender appender, _Staging staging, Route route, int queue_id):
    """Let the record that was staged last be a half message (TransactionalMessageBridge.parseHalfMessageInner)."""
    cdef Route halves = appender.routes.waiting(HALF_TOPIC)
    cdef unsigned char *start
    redirect(staging, route, queue_id, halves, halves.queue_ids[0], {})
    start = staging.section.staged
    put_i32(start + R_SYS_FLAG, get_i32(start + R_SYS_FLAG) & ~SYS_FLAG_COMMITTED)
    return halves


cdef int count_inner(const unsigned char *at, Py_ssize_t left, uint64_t most) except -1:
    """Return how many messages are in the body of a batch. Raises MessageRejected, BatchTooLarge."""
    cdef Py_ssize_t whole = left
    cdef Py_ssize_t size
    cdef uint64_t count = 0
    while left:
        size = inner_size(at, left)
        if size <= 0:
            raise MessageRejected(WHAT_IS_WRONG(
                whole - left, "sizes do not add up" if size == 0 else "its properties are too long"))
        count += 1
        at += size
        left -= size
    if count == 0:
        raise MessageRejected("a batch without messages: its body is empty")
    if count > most:
        raise BatchTooLarge(
            f"{count} messages are over the limit of {most} a batch, the entries of one consume queue file: send a "
            "smaller batch")
    return <int>count


cdef bytes text_given(object properties):
    """Properties as UTF-8, without a CRC of the sender's. Raises MessageRejected, PropertiesTooLarge."""
    cdef bytes text
    try:
        text = <bytes>properties if type(properties) is bytes else (<str?>properties).encode()
    except UnicodeEncodeError as error:
        raise MessageRejected(f"properties {properties[:80]!r} cannot be stored as UTF-8: {error.reason}") from None
    check_text(<const unsigned char *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return without(text, b"__CRC32#\x01") if b"__CRC32#" in text else text


cdef int check_text(const unsigned char *text, Py_ssize_t size) except -1:
    """Refuse properties that no client could read."""
    if size > MAX_PROPERTIES_BYTES:
        raise PropertiesTooLarge(f"properties of {size} bytes; the limit is {MAX_PROPERTIES_BYTES}: shorten them")
    if not is_utf8(text, size):
        raise MessageRejected(f"properties {text[:min(size, 80)]!r} are not UTF-8")
    return 0


cdef bytes without(bytes text, bytes name):
    """Properties but for those whose text begins with ``name``."""
    if name not in text:
        return text
    return b"".join([pair + b"\x02" for pair in text.split(b"\x02") if pair and not pair.startswith(name)])


cdef str offset_id(bytes store_host, uint64_t commit_log_offset):
    """Return an offset message id (MessageDecoder.createMessageId)."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(store_host)
    cdef const unsigned char *host = <const unsigned char *>PyBytes_AS_STRING(store_host)
    cdef unsigned char text[2 * LONG_HOST_SIZE + 16]
    cdef Py_ssize_t number
    for number in range(size):
        put_hex(text + 2 * number, host[number], 2)
    put_hex(text + 2 * size, commit_log_offset, 16)
    return text[:2 * size + 16].decode("ascii")
