# --- the timer: messages that wait for their time, and what ends that ----------------------------------------------

cdef struct Waiting:
    int64_t due_ms
    int64_t queue_offset


cdef inline bint is_before(const Waiting *one, const Waiting *other) noexcept nogil:
    return one.due_ms < other.due_ms or one.due_ms == other.due_ms and one.queue_offset < other.queue_offset


@cython.final
cdef class TimerHeap:
    """Due time and queue offset of messages that wait, the next one first; 16 bytes each."""

    cdef Waiting *items
    cdef Py_ssize_t count
    cdef Py_ssize_t room

    def __dealloc__(self):
        free(self.items)

    def __len__(self):
        return self.count

    @property
    def next_due(self):
        return self.items[0].due_ms if self.count else None

    def push(self, int64_t due_ms, int64_t queue_offset):
        self._reserve(1)
        self._push(due_ms, queue_offset)

    def pop_due(self, int64_t now_ms, Py_ssize_t limit):
        cdef list popped = []
        while self.count and self.items[0].due_ms <= now_ms and limit > 0:
            popped.append((self.items[0].due_ms, self.items[0].queue_offset))
            self._pop()
            limit -= 1
        return popped

    def fill(self, bytes entries not None, int64_t first, Mapping shared not None, Py_ssize_t timer_at, uint64_t bits):
        cdef const unsigned char *entry = <const unsigned char *>PyBytes_AS_STRING(entries)
        cdef const unsigned char *timer = shared.address + timer_at
        cdef Py_ssize_t count = PyBytes_GET_SIZE(entries) // ENTRY_SIZE
        cdef Py_ssize_t number
        cdef uint64_t at
        cdef int64_t code
        cdef list unclear = []
        check_timer(shared, timer_at, bits)
        self._reserve(count)
        for number in range(count):
            at = <uint64_t>(first + number) % bits
            code = get_i64(entry + number * ENTRY_SIZE + E_TAGS_CODE)
            if is_done(timer, first + number, load64(timer + TIMER_HEADER_SIZE + (at >> 6) * 8), <uint64_t>1 << (at & 63)):
                continue
            if code > MOST_TAGS_CODE:
                self._push(code, first + number)
            else:
                unclear.append(first + number)
        return unclear

    cdef int _reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t room = self.room
        cdef void *grown
        if self.count + more > room:
            room = max(self.count + more, room + room // 8, <Py_ssize_t>4096)
            grown = realloc(self.items, room * sizeof(Waiting))
            if grown == NULL:
                raise MemoryError()
            self.items = <Waiting *>grown
            self.room = room
        return 0

    cdef void _push(self, int64_t due_ms, int64_t queue_offset) noexcept:
        cdef Waiting item
        cdef Py_ssize_t at = self.count
        cdef Py_ssize_t parent
        item.due_ms = due_ms
        item.queue_offset = queue_offset
        self.count += 1
        while at:
            parent = (at - 1) >> 1
            if not is_before(&item, &self.items[parent]):
                break
            self.items[at] = self.items[parent]
            at = parent
        self.items[at] = item

    cdef void _pop(self) noexcept:
        cdef Waiting item
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t child
        self.count -= 1
        item = self.items[self.count]
        while True:
            child = 2 * at + 1
            if child >= self.count:
                break
            if child + 1 < self.count and is_before(&self.items[child + 1], &self.items[child]):
                child += 1
            if not is_before(&self.items[child], &item):
                break
            self.items[at] = self.items[child]
            at = child
        if self.count:
            self.items[at] = item


cdef int check_timer(Mapping shared, Py_ssize_t timer_at, uint64_t bits) except -1:
    if bits == 0 or bits % 64 or timer_at <= 0 or timer_at + TIMER_HEADER_SIZE + <Py_ssize_t>(bits // 8) > shared.size:
        raise ValueError(f"{bits} bits at byte {timer_at} are no timer in {shared.size} bytes")
    return 0


def deliver_timed(Appender appender not None, ReceivedMessage message not None, str topic not None, int queue_id):
    cdef Route route = appender._route_to(topic, queue_id)
    return end_wait(appender, message, route, queue_id, False)


def roll_timed(Appender appender not None, ReceivedMessage message not None):
    return end_wait(appender, message, appender._waiting(TIMER_TOPIC), 0, True)


cdef end_wait(Appender appender, ReceivedMessage message, Route route, int queue_id, bint is_roll):
    """Append a message of the timer again, to its queue or behind the others of the timer, and count it as done."""
    cdef Section section
    cdef int64_t now = wall_clock_ms()
    cdef int number = route.number_of(queue_id)
    cdef SendResult result = SendResult.__new__(SendResult)
    cdef _Plan plan = appender._take_plan(1)
    try:
        appender._stage_copy(plan, message, route, queue_id, message.delivery_attempt - 1)
        put_timer_properties(appender, plan, message, is_roll)
        appender._check_file_size(plan)
        name_result(result, message.message_id)
        count_as_done(appender, plan, message)
        if is_roll:
            plan.timer_room = appender.timer_bits
            plan.makes_room = True  # retention waits for it
        if not appender._commit(plan, route.slots[number], now, &section):
            return None
        place_result(result, route.queues[number], &section)
    finally:
        appender.spare = plan
    return result


def cancel_timed(Appender appender not None, ReceivedMessage message not None):
    cdef Route timer = appender._waiting(TIMER_TOPIC)
    cdef Section section
    cdef int64_t now = wall_clock_ms()
    cdef int number = timer.number_of(0)
    cdef SendResult result = SendResult.__new__(SendResult)
    cdef _Plan plan = appender._take_plan(1)
    operation = Message(TIMER_TOPIC, b"")
    kept = message.some_properties((b"REAL_TOPIC", b"REAL_QID", b"TIMER_DELIVER_MS", b"TIMER_OUT_MS"))
    try:
        appender._stage(plan, operation, timer, number, None, now, result)
        more = {name.encode(): value.encode() for name, value in kept.items()}
        more[b"TIMER_DEL_UNIQKEY"] = message.message_id.encode()
        more[b"TIMER_QUEUE_OFFSET"] = b"%d" % message.queue_offset
        appender._add_properties(plan, timer, 0, more)
        appender._check_file_size(plan)
        count_as_done(appender, plan, message)
        plan.timer_room = appender.timer_bits
        if not appender._commit(plan, timer.slots[number], now, &section):
            return None
        place_result(result, timer.queues[number], &section)
    finally:
        appender.spare = plan
    return result


cdef int count_as_done(Appender appender, _Plan plan, ReceivedMessage message) except -1:
    """Let the append that is planned also set the bit of a message of the timer, unless that is done."""
    cdef uint64_t number = <uint64_t>get_i64(message.at + R_QUEUE_OFFSET)
    cdef uint64_t at = number % appender.timer_bits
    plan.done_at = appender.timer_at + TIMER_HEADER_SIZE + (at >> 6) * 8
    plan.done_bit = <uint64_t>1 << (at & 63)
    plan.done_offset = number
    return 0


cdef int put_timer_properties(Appender appender, _Plan plan, ReceivedMessage message, bint is_roll) except -1:
    """Write the properties of a message of the timer, and which one it was; finish the record."""
    cdef const unsigned char *at = message.at + message.frame.properties_at
    cdef const unsigned char *end = at + message.frame.properties_size
    cdef const unsigned char *stop
    cdef unsigned char *start = plan.staged + plan.size + plan.properties_at
    cdef unsigned char *target = start
    cdef bint is_long = message.frame.properties_size + MOST_ADDED > MAX_PROPERTIES_BYTES
    cdef bytes number = b"%d" % message.queue_offset
    cdef bytes rolls
    while at < end:
        stop = <const unsigned char *>memchr(at, 2, end - at)
        if stop == NULL:
            stop = end
        if stop > at and not is_left_out(at, stop - at, is_roll, is_long):
            memcpy(target, at, stop - at)
            target[stop - at] = 2
            target += stop - at + 1
        at = stop + 1
    target = put_property(target, b"TIMER_QUEUE_OFFSET", 18, PyBytes_AS_STRING(number), PyBytes_GET_SIZE(number))
    if is_roll:
        rolls = b"%d" % (rolls_of(message) + 1)
        target = put_property(target, b"TIMER_ROLL_TIMES", 16, PyBytes_AS_STRING(rolls), PyBytes_GET_SIZE(rolls))
    if target - start + CRC_PROPERTY_SIZE > MAX_PROPERTIES_BYTES:
        raise PropertiesTooLarge(
            f"properties of message {message.queue_offset} of {TIMER_TOPIC} take more than {MAX_PROPERTIES_BYTES} bytes")
    appender._finish_staged(plan, target, target - start + CRC_PROPERTY_SIZE)
    return 0


cdef bint is_left_out(const unsigned char *pair, Py_ssize_t size, bint is_roll, bint is_long) noexcept nogil:
    """Whether a property does not go with a message when it leaves the timer: ``is_long`` when there is no room."""
    if is_named(pair, size, b"__CRC32#", 8) or is_named(pair, size, b"TIMER_QUEUE_OFFSET", 18):
        return True
    if is_roll:
        return is_named(pair, size, b"TIMER_ROLL_TIMES", 16)
    return is_long and (is_named(pair, size, b"REAL_TOPIC", 10) or is_named(pair, size, b"REAL_QID", 8)
                        or is_named(pair, size, b"TIMER_OUT_MS", 12) or is_named(pair, size, b"TIMER_DELIVER_MS", 16))


cdef inline bint is_named(const unsigned char *pair, Py_ssize_t size, const char *name, Py_ssize_t name_size) noexcept nogil:
    return size > name_size and pair[name_size] == 1 and memcmp(pair, name, name_size) == 0


cdef int rolls_of(ReceivedMessage message) except -1:
    text = message.some_properties((b"TIMER_ROLL_TIMES",)).get("TIMER_ROLL_TIMES", "0")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def wait_ends(buffer, int64_t begin, int64_t stop):
    """Walk over records from ``begin`` up to ``stop`` as far as they go; note those that end the wait of a message."""
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
        if parse(record, part.left(begin), begin, &frame) != IS_RECORD:
            break
        key = find_property(record + frame.properties_at, frame.properties_size, b"TIMER_DEL_UNIQKEY", 17, &key_size)
        is_operation = key != NULL
        if key == NULL:
            key = find_property(record + frame.properties_at, frame.properties_size, b"UNIQ_KEY", 8, &key_size)
        found.append((
            begin, PyBytes_FromStringAndSize(<char *>value, size),
            None if key == NULL else PyBytes_FromStringAndSize(<char *>key, key_size),
            get_i64(record + R_QUEUE_OFFSET)
            if is_operation and is_timer_topic(record + frame.topic_at, frame.topic_size) else -1))
        begin += frame.size
    return begin, found


cdef (int64_t, const unsigned char *) next_wait_end(_Range part, int64_t offset, Frame *frame,
                                                    Py_ssize_t *size) noexcept nogil:
    """Offset and TIMER_QUEUE_OFFSET of the next record that has one; NULL where no record stands, or at the end."""
    cdef const unsigned char *record
    cdef const unsigned char *value
    while offset < part.stop:
        record = part.at(offset)
        if frame_of(record, part.left(offset), offset, frame) != IS_RECORD:
            return offset, NULL
        value = find_property(record + frame.properties_at, frame.properties_size, b"TIMER_QUEUE_OFFSET", 18, size)
        if value != NULL:
            return offset, value
        offset += frame.size
    return offset, NULL
