# --- the appender: stages records, and gets what the section needs between its attempts ---------------------------

cdef enum:
    TIMER_RESERVE = 64            # one part of so many of the timer is left to rolls and cancels
    MOST_ADDED = 128              # bytes, by delivery and rolls, to the properties of a message that waits

cdef struct NotedFile:  # where the last append to a queue found its consume queue file
    unsigned char *entries
    uint64_t first_entry
    uint64_t unmapped


@cython.final
cdef class Appender:
    """Appends messages for one process. What it needs from files it asks ``files`` for, outside of the mutex.

    ``files`` is a :class:`rmqclient.store.append.appending.AppendFiles`; ``make_route`` returns the :class:`Route` of a new topic;
    ``encode_body`` turns a body that is not ``bytes`` into bytes.
    """

    cdef Mapping shared
    cdef object files
    cdef object make_route
    cdef object encode_body
    cdef dict routes
    cdef dict waiting                   # routes of the topics in which messages wait, when there was one
    cdef tuple log_files                # (Mapping, base, Mapping or None, base)
    cdef list queue_files               # per slot: (Mapping, first entry, Mapping or None, first entry), borrowed, or None
    cdef NotedFile *noted               # by slot, for as long as nothing was unmapped
    cdef int noted_count
    cdef uint64_t log_file_bytes
    cdef uint64_t entries_per_file
    cdef Py_ssize_t max_body_bytes
    cdef int64_t timeout_ns
    cdef int64_t busy_ns
    cdef Py_ssize_t queue_table_at
    cdef Py_ssize_t queue_slot_size
    cdef Py_ssize_t timer_at
    cdef uint64_t timer_bits
    cdef unsigned char born_host[8]
    cdef unsigned char store_host[8]
    cdef unsigned char unique_prefix[20]
    cdef uint64_t month_start
    cdef uint64_t month_end
    cdef unsigned int counter
    cdef _Plan spare
    cdef uint64_t ahead_mark            # an append past it wakes the preparer, if it waits
    cdef uint32_t ahead_word
    cdef uint32_t ahead_waiting
    cdef uint32_t ahead_stopped

    def __init__(self, Mapping shared not None, object files, object make_route, object encode_body, *,
                 uint64_t log_file_bytes, uint64_t entries_per_file, Py_ssize_t max_body_bytes, int64_t timeout_ms,
                 int64_t busy_timeout_ms, Py_ssize_t queue_table_at, Py_ssize_t queue_slot_size, Py_ssize_t timer_at,
                 uint64_t timer_bits, bytes born_host not None, bytes store_host not None, bytes unique_prefix not None):
        if len(born_host) != 8 or len(store_host) != 8 or len(unique_prefix) != 10:
            raise ValueError("hosts are 4 + 4 bytes, the prefix of unique keys 10")
        self.shared = shared
        self.files = files
        self.make_route = make_route
        self.encode_body = encode_body
        self.routes = {}
        self.waiting = {}
        self.queue_files = []
        self.log_file_bytes = log_file_bytes
        self.entries_per_file = entries_per_file
        self.max_body_bytes = max_body_bytes
        self.timeout_ns = timeout_ms * 1000000
        self.busy_ns = busy_timeout_ms * 1000000
        self.queue_table_at = queue_table_at
        self.queue_slot_size = queue_slot_size
        self.timer_at = timer_at
        self.timer_bits = timer_bits
        memcpy(self.born_host, PyBytes_AS_STRING(born_host), 8)
        memcpy(self.store_host, PyBytes_AS_STRING(store_host), 8)
        prefix = unique_prefix.hex().upper().encode()
        memcpy(self.unique_prefix, PyBytes_AS_STRING(prefix), 20)
        self.counter = int.from_bytes(os.urandom(2), "little")

    def add_route(self, Route route not None):
        self.routes[route.topic] = route

    def append(self, Message message not None, str sharding_key=None, int delay_level=0, int64_t due_ms=0):
        check_wait(delay_level, due_ms)
        cdef Route route = self._route(message.topic)
        cdef int number = route.pick(route.sharding(message, sharding_key))
        cdef _Plan plan = self._take_plan(1)
        cdef int64_t now = wall_clock_ms()
        cdef SendResult result = SendResult.__new__(SendResult)
        cdef Section section
        try:
            self._stage(plan, message, route, number, sharding_key, now, result)
            if delay_level:
                route, number = self._delay(plan, route, route.queue_ids[number], delay_level)
            elif due_ms:
                route, number = self._wait_until(plan, route, route.queue_ids[number], due_ms)
            self._commit(plan, route.slots[number], now, &section)
            result.queue = route.queues[number]
            result.queue_offset = section.queue_offset
            result.commit_log_offset = section.commit_log_offset
            result.commit_log_end = section.commit_log_offset + section.staged_size
        finally:
            self.spare = plan
        return result

    def record_size(self, Message message not None, str sharding_key=None):
        """Bytes that the record of a message will take. Raises what append would raise for this message alone."""
        cdef Route route = self._route(message.topic)
        cdef _Plan plan
        route.sharding(message, sharding_key)
        plan = self._take_plan(1)
        try:
            self._stage(plan, message, route, 0, sharding_key, wall_clock_ms(), SendResult.__new__(SendResult))
            return plan.size
        finally:
            self.spare = plan

    def queue_of(self, Message message not None, str sharding_key=None):
        """Number of the queue that a message must go to; None where the queues take turns."""
        cdef Route route = self._route(message.topic)
        cdef str sharding = route.sharding(message, sharding_key)
        return None if sharding is None else route.pick(sharding)

    def append_batch(self, messages, str sharding_key=None, int delay_level=0, int64_t due_ms=0):
        cdef list batch = messages if type(messages) is list else list(messages)
        cdef int count = <int>len(batch)
        cdef Section section
        cdef SendResult result
        cdef Message message
        cdef uint64_t commit_log_offset
        cdef int index
        cdef int place = 0
        cdef Route waiting = None
        check_wait(delay_level, due_ms)
        if count == 0:
            return []
        if not isinstance(batch[0], Message):
            raise TypeError(f"a batch holds Message objects, not {type(batch[0]).__name__}")
        if <uint64_t>count > self.entries_per_file:
            raise BatchTooLarge(
                f"{count} messages are over the limit of {self.entries_per_file} a batch, the entries of one consume "
                "queue file: send a smaller batch")
        cdef Route route = self._route((<Message>batch[0]).topic)
        cdef int number = route.pick(route.sharding(<Message>batch[0], sharding_key))
        cdef _Plan plan = self._take_plan(count)
        cdef int64_t now = wall_clock_ms()
        cdef list results = []
        try:
            for item in batch:
                if not isinstance(item, Message):
                    raise TypeError(f"a batch holds Message objects, not {type(item).__name__}")
                message = <Message>item
                if message.topic != route.topic:
                    raise MessageRejected(
                        f"a batch goes to one queue: topic {message.topic!r} in a batch for {route.topic!r}")
                if route.compact and route.pick(route.sharding(message, sharding_key)) != number:
                    raise MessageRejected(
                        f"a batch goes to one queue: topic {route.topic!r} is compact, and its keys {batch[0].keys[0]!r} "
                        f"and {message.keys[0]!r} have different ones: make a batch for each, or give a sharding_key")
                result = SendResult.__new__(SendResult)
                self._stage(plan, message, route, number, sharding_key, now, result)
                if delay_level:
                    waiting, place = self._delay(plan, route, route.queue_ids[number], delay_level)
                elif due_ms:
                    waiting, place = self._wait_until(plan, route, route.queue_ids[number], due_ms)
                results.append(result)
            if delay_level or due_ms:
                route, number = waiting, place
            if plan.size + BLANK_SIZE > <Py_ssize_t>self.log_file_bytes:
                raise BatchTooLarge(
                    f"{count} records take {plan.size} bytes; one commit log file holds "
                    f"{self.log_file_bytes - BLANK_SIZE}: send a smaller batch")
            self._commit(plan, route.slots[number], now, &section)
            commit_log_offset = section.commit_log_offset
            queue = route.queues[number]
            for index in range(count):
                result = <SendResult>results[index]
                result.queue = queue
                result.queue_offset = section.queue_offset + index
                result.commit_log_offset = commit_log_offset
                commit_log_offset += plan.sizes[index]
                result.commit_log_end = commit_log_offset
        finally:
            self.spare = plan
        return results

    def append_inner_batch(self, messages, pack, str sharding_key=None, *, int64_t most_bytes):
        cdef list batch = messages if type(messages) is list else list(messages)
        cdef Py_ssize_t count = len(batch)
        cdef Section section
        cdef Route route
        cdef Message first, outer
        cdef SendResult result
        cdef _Plan plan
        cdef int64_t now = wall_clock_ms()
        cdef list results = []
        cdef int number
        if count == 0:
            return []
        if count > MOST_INNER:
            raise BatchTooLarge(f"{count} messages are over the limit of {MOST_INNER} a compressed batch: send a smaller batch")
        check_batch(batch)
        first = batch[0]
        route = self._route(first.topic)
        if route.compact:
            raise MessageRejected(
                f"topic {route.topic!r} is compact: it keeps the latest record of each key, and a compressed batch is one "
                "record for all of its keys: send the batch without compression, or with that of the producer")
        number = route.pick(sharding_key)
        plan = self._take_plan(1)
        try:
            content = self._stage_inner(plan, batch, route, sharding_key, now, results, most_bytes)
            packed, sys_flag = pack(content)
            if len(packed) > self.max_body_bytes:
                raise BatchTooLarge(
                    f"{count} messages take {len(packed)} bytes compressed; the limit of a record is {self.max_body_bytes} "
                    "(max_body_bytes): send a smaller batch")
            outer = Message(first.topic, packed, tags=first.tags, keys=keys_of(batch), properties={"INNER_NUM": str(count)})
            outer.sys_flag = <int>sys_flag | SYS_FLAG_INNER_BATCH
            self._stage(plan, outer, route, number, sharding_key, now, results[0])
            self._check_file_size(plan)
            self._commit(plan, route.slots[number], now, &section)
            for result in results:
                place_result(result, route.queues[number], &section)
        finally:
            self.spare = plan
        return results

    cdef bytes _stage_inner(self, _Plan plan, list batch, Route route, str sharding_key, int64_t now, list results,
                            int64_t most_bytes):
        """The messages one behind the other, as a batch has them, with unique keys that follow each other."""
        cdef unsigned int counter = self.counter + 1
        cdef Py_ssize_t size, properties_size, body_size
        cdef Py_ssize_t used = 0
        cdef Message message
        cdef SendResult result
        cdef unsigned char *at
        cdef int64_t tags_code = 0
        cdef char key[32]
        self.counter += <unsigned int>len(batch)
        self._put_unique_key(<unsigned char *>key, now)
        for message in batch:
            body = message.body
            if type(body) is not bytes:
                body = self.encode_body(body)
            body_size = PyBytes_GET_SIZE(<bytes?>body)
            self._check_body_size(body_size)
            plan.reserve(INNER_HEAD_SIZE + body_size + 2 + 2 * MAX_PROPERTIES_BYTES)
            at = plan.staged + used
            result = SendResult.__new__(SendResult)
            memcpy(result.unique_key, key, 28)
            put_hex(<unsigned char *>result.unique_key + 28, counter, 4)
            counter += 1
            results.append(result)
            memset(at, 0, INNER_HEAD_SIZE)
            put_i32(at + INNER_FLAG, message.flag)
            put_i32(at + INNER_BODY_SIZE, <int32_t>body_size)
            memcpy(at + INNER_HEAD_SIZE, PyBytes_AS_STRING(body), body_size)
            size = INNER_HEAD_SIZE + body_size + 2
            properties_size = self._stage_properties(at + size, message, sharding_key, now, result, &tags_code)
            properties_size -= CRC_PROPERTY_SIZE
            put_i16(at + size - 2, <int>properties_size)
            size += properties_size
            put_i32(at, <int32_t>size)
            used += size
            plan.size = used
            if used > most_bytes:
                raise BatchTooLarge(
                    f"a batch of more than {most_bytes} bytes (max_opened_body_bytes), which nobody would open: send a "
                    "smaller batch")
        plan.size = 0
        return PyBytes_FromStringAndSize(<char *>plan.staged, used)

    def append_copy(self, ReceivedMessage message not None, str topic not None, int queue_id, object properties not None,
                    *, int reconsume_times, int delay_level=0):
        cdef Section section
        cdef int64_t now = wall_clock_ms()
        cdef Route route = self._route_to(topic, queue_id)
        cdef int number = route.number_of(queue_id)
        cdef _Plan plan
        cdef SendResult result = SendResult.__new__(SendResult)
        if delay_level < 0:
            raise ValueError(wrong_level(delay_level, 0))
        plan = self._take_plan(1)
        try:
            self._stage_copy(plan, message, route, queue_id, reconsume_times)
            self._copy_properties(plan, properties, topic)
            if delay_level:
                route, number = self._delay(plan, route, queue_id, min(delay_level, LEVELS))
            self._check_file_size(plan)
            name_result(result, properties.get("UNIQ_KEY") or message.message_id)
            self._commit(plan, route.slots[number], now, &section)
            result.queue = route.queues[number]
            result.queue_offset = section.queue_offset
            result.commit_log_offset = section.commit_log_offset
            result.commit_log_end = section.commit_log_offset + section.staged_size
        finally:
            self.spare = plan
        return result

    def deliver(self, ReceivedMessage message not None, str topic not None, int queue_id, Py_ssize_t progress_at):
        cdef Section section
        cdef int64_t now = wall_clock_ms()
        cdef Route route = self._route_to(topic, queue_id)
        cdef int number = route.number_of(queue_id)
        cdef SendResult result = SendResult.__new__(SendResult)
        cdef _Plan plan
        if not 0 < progress_at <= self.shared.size - 8 or progress_at % 8:
            raise ValueError(f"byte {progress_at} is no word of the runtime file")
        plan = self._take_plan(1)
        try:
            self._stage_copy(plan, message, route, queue_id, message.delivery_attempt - 1)
            self._keep_properties(plan, message)
            self._check_file_size(plan)
            name_result(result, message.message_id)
            plan.progress_at = progress_at
            plan.progress_from = message.queue_offset
            if not self._commit(plan, route.slots[number], now, &section):
                return None
            result.queue = route.queues[number]
            result.queue_offset = section.queue_offset
            result.commit_log_offset = section.commit_log_offset
            result.commit_log_end = section.commit_log_offset + section.staged_size
        finally:
            self.spare = plan
        return result

    def append_half(self, Message message not None, str group not None, str sharding_key=None, int immunity_s=0):
        cdef Section section
        cdef Route route = self._route(message.topic)
        cdef Route halves = self._waiting(HALF_TOPIC)
        cdef int queue_id = route.queue_ids[route.pick(route.sharding(message, sharding_key))]
        cdef _Plan plan = self._take_plan(1)
        cdef int64_t now = wall_clock_ms()
        cdef SendResult result = SendResult.__new__(SendResult)
        more = {b"TRAN_MSG": b"true", b"PGROUP": group.encode()}
        if immunity_s:
            more[b"CHECK_IMMUNITY_TIME_IN_SECONDS"] = b"%d" % immunity_s
        try:
            self._stage(plan, message, route, route.number_of(queue_id), sharding_key, now, result)
            self._redirect(plan, route, queue_id, halves, halves.queue_ids[0], more)
            self._check_file_size(plan)
            self._commit(plan, halves.slots[0], now, &section)
            place_result(result, halves.queues[0], &section)
        finally:
            self.spare = plan
        return result

    def decide(self, ReceivedMessage half not None, str topic, int queue_id, object guards not None):
        cdef Section section
        cdef int64_t now = wall_clock_ms()
        cdef Route operations = self._waiting(OPERATION_TOPIC)
        cdef int operation = operations.number_of(half.queue_id)
        cdef Route route = operations if topic is None else self._route_to(topic, queue_id)
        cdef int number = operation if topic is None else route.number_of(queue_id)
        cdef SendResult result = SendResult.__new__(SendResult)
        cdef _Plan plan = self._take_plan(2)
        cdef unsigned char *start
        try:
            self._guard(plan, guards)
            if topic is not None:
                self._stage_copy(plan, half, route, queue_id, half.delivery_attempt - 1)
                start = plan.staged + plan.size
                put_i32(start + R_SYS_FLAG, get_i32(start + R_SYS_FLAG) & ~SYS_FLAG_TRANSACTION | SYS_FLAG_COMMITTED)
                put_i64(start + reconsume_times_at(start) + R_PREPARED_OFFSET - R_RECONSUME_TIMES, half.commit_log_offset)
                self._keep_properties(plan, half)
                plan.other_slot = operations.slots[operation]
            self._stage_operation(plan, operations, half, now)
            self._check_file_size(plan)
            name_result(result, half.message_id)
            if not self._commit(plan, route.slots[number], now, &section):
                return None
            place_result(result, route.queues[number], &section)
        finally:
            self.spare = plan
        return result

    def pass_half(self, ReceivedMessage half not None, str topic not None, object properties not None,
                  Py_ssize_t progress_at, object guards not None):
        cdef Section section
        cdef int64_t now = wall_clock_ms()
        cdef Route route = self._waiting(topic)
        cdef bint renewed = topic == HALF_TOPIC
        cdef int queue_id = half.queue_id if renewed else route.queue_ids[0]
        cdef int number = route.number_of(queue_id)
        cdef SendResult result = SendResult.__new__(SendResult)
        cdef _Plan plan = self._take_plan(1)
        pairs = {(<str?>name).encode(): value for name, value in properties.items()}
        try:
            self._stage_copy(plan, half, route, queue_id, 0 if renewed else half.delivery_attempt - 1)
            if renewed:
                put_i32(plan.staged + plan.size + R_FLAG, 0)
            self._copy_properties(plan, {name.decode(): pairs[name] for name in order_of_hash_map(pairs)}, topic)
            self._check_file_size(plan)
            name_result(result, half.message_id)
            self._guard(plan, guards)
            self._check_word(progress_at)
            plan.progress_at = progress_at
            plan.progress_from = half.queue_offset
            if not self._commit(plan, route.slots[number], now, &section):
                return None
            place_result(result, route.queues[number], &section)
        finally:
            self.spare = plan
        return result

    cdef int _guard(self, _Plan plan, object words) except -1:
        """Append nothing unless the words at these bytes of the runtime file have these values."""
        cdef int number
        if len(words) > GUARDS:
            raise ValueError(f"{len(words)} guards: at most {GUARDS}")
        for number, (at, value) in enumerate(words.items()):
            self._check_word(at)
            plan.guard_at[number] = at
            plan.guard_value[number] = value
        return 0

    cdef int _check_word(self, Py_ssize_t at) except -1:
        if not 0 < at <= self.shared.size - 8 or at % 8:
            raise ValueError(f"byte {at} is no word of the runtime file")
        return 0

    cdef int _stage_operation(self, _Plan plan, Route route, ReceivedMessage half, int64_t now) except -1:
        """Write the record that says that a half message is decided (TransactionalMessageBridge.makeOpMessageInner)."""
        cdef bytes body = b"%d" % half.queue_offset
        cdef bytes properties = b"WAIT\x01true\x02TAGS\x01d\x02"
        cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body)
        cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(route.name)
        cdef Py_ssize_t properties_size = PyBytes_GET_SIZE(properties)
        cdef unsigned char *start
        cdef unsigned char *at
        plan.reserve(RECORD_FIXED_SIZE + body_size + topic_size + properties_size + CRC_PROPERTY_SIZE)
        start = plan.staged + plan.size
        memset(start, 0, RECORD_HEADER_SIZE)
        put_i32(start + R_MAGIC, RECORD_MAGIC)
        put_i32(start + R_BODY_CRC, <int32_t>(
            rmq_crc32(0, <const unsigned char *>PyBytes_AS_STRING(body), body_size) & 0x7FFFFFFF))
        put_i32(start + R_QUEUE_ID, half.queue_id)
        put_i64(start + R_BORN_TIMESTAMP, now)
        memcpy(start + R_BORN_HOST, self.store_host, 8)
        memcpy(start + R_STORE_HOST, self.store_host, 8)
        put_i32(start + R_BODY_SIZE, <int32_t>body_size)
        at = start + RECORD_HEADER_SIZE
        memcpy(at, PyBytes_AS_STRING(body), body_size)
        at += body_size
        at[0] = <unsigned char>topic_size
        memcpy(at + 1, PyBytes_AS_STRING(route.name), topic_size)
        at += 3 + topic_size
        memcpy(at, PyBytes_AS_STRING(properties), properties_size)
        self._finish_staged(plan, at + properties_size, properties_size + CRC_PROPERTY_SIZE)
        return 0

    cdef int _stage_copy(self, _Plan plan, ReceivedMessage message, Route route, int queue_id,
                         int reconsume_times) except -1:
        """Write a record as ``_stage`` does, up to its properties, with everything from ``message`` but its place."""
        cdef Py_ssize_t kept = message.frame.body_at + message.frame.body_size
        cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(route.name)
        cdef unsigned char *start
        cdef unsigned char *at
        plan.reserve(kept + 3 + topic_size + 2 * MAX_PROPERTIES_BYTES)
        start = plan.staged + plan.size
        memcpy(start, message.at, kept)
        put_i32(start + R_QUEUE_ID, queue_id)
        at = start + reconsume_times_at(start)
        put_i32(at, reconsume_times)
        put_i64(at + R_PREPARED_OFFSET - R_RECONSUME_TIMES, 0)
        at = start + kept
        at[0] = <unsigned char>topic_size
        memcpy(at + 1, PyBytes_AS_STRING(route.name), topic_size)
        plan.properties_at = kept + 3 + topic_size
        return 0

    cdef int _copy_properties(self, _Plan plan, object properties, str topic) except -1:
        """Write the properties given, and finish the record."""
        cdef Py_ssize_t used = CRC_PROPERTY_SIZE
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t name_size = 0
        cdef const char *name
        cdef const char *text
        cdef unsigned char *at = plan.staged + plan.size + plan.properties_at
        for key, value in properties.items():
            name = text_of(<str?>key, "property name", False, &name_size)
            text = text_of(<str?>value, "property value", False, &size)
            if name_size == 0 or size == 0:
                raise MessageRejected(f"property {key!r}: {value!r}: RocketMQ drops empty names and values")
            used += name_size + size + 2
            if used > MAX_PROPERTIES_BYTES:
                raise PropertiesTooLarge(
                    f"properties of a copy for topic {topic!r} take more than {MAX_PROPERTIES_BYTES} bytes on disk")
            at = put_property(at, name, name_size, text, size)
        self._finish_staged(plan, at, used)
        return 0

    cdef int _keep_properties(self, _Plan plan, ReceivedMessage message) except -1:
        """Write the properties of ``message`` byte for byte, and finish the record."""
        cdef const unsigned char *properties = message.at + message.frame.properties_at
        cdef Py_ssize_t size = message.frame.properties_size
        cdef unsigned char *at = plan.staged + plan.size + plan.properties_at
        if size >= CRC_PROPERTY_SIZE and memcmp(properties + size - CRC_PROPERTY_SIZE, b"__CRC32#\x01", 9) == 0:
            size -= CRC_PROPERTY_SIZE
        if size + 1 + CRC_PROPERTY_SIZE > MAX_PROPERTIES_BYTES:  # a broker's, without room for the CRC
            kept = {name: value for name, value in message.properties.items()
                    if name not in ("DELAY", "REAL_TOPIC", "REAL_QID")}
            return self._copy_properties(plan, kept, message.topic)
        memcpy(at, properties, size)
        if size and at[size - 1] != 2:
            at[size] = 2
            size += 1
        self._finish_staged(plan, at + size, size + CRC_PROPERTY_SIZE)
        return 0

    cdef void _finish_staged(self, _Plan plan, unsigned char *end, Py_ssize_t properties_size) noexcept:
        """Enter the sizes of the record that was staged last; ``end`` is behind its properties but for the CRC."""
        cdef unsigned char *start = plan.staged + plan.size
        cdef Py_ssize_t total = end + CRC_PROPERTY_SIZE - start
        cdef Frame frame
        put_i16(end + CRC_PROPERTY_SIZE - properties_size - 2, <int>properties_size)
        put_i32(start, <int32_t>total)
        put_crc_property(end, 0)  # what stood in this memory before could be taken for a tag
        frame_of(start, total, get_i64(start + R_COMMIT_LOG_OFFSET), &frame)
        plan.sizes[plan.count] = <int32_t>total
        plan.tags_codes[plan.count] = tags_code_of(start, &frame)
        plan.count += 1
        plan.size += total

    cdef _delay(self, _Plan plan, Route route, int queue_id, int level):
        """Make the record that was staged last wait in a delay level; return route and number of the queue there.

        CommitLog.asyncPutMessage.
        """
        cdef Route schedule = self._waiting(SCHEDULE_TOPIC)
        self._redirect(plan, route, queue_id, schedule, level - 1, {b"DELAY": b"%d" % level})
        plan.delay_ms = DELAY_MS[level - 1]
        return schedule, schedule.number_of(level - 1)

    cdef _wait_until(self, _Plan plan, Route route, int queue_id, int64_t due_ms):
        """Make the record that was staged last wait in the timer; return route and number of the queue there.

        TIMER_OUT_MS is when RocketMQ 5 takes it out (HookUtils.transformTimerMessage), here without rounding.
        """
        cdef Route timer = self._waiting(TIMER_TOPIC)
        cdef bytes due = b"%d" % due_ms
        self._redirect(plan, route, queue_id, timer, 0, {b"TIMER_DELIVER_MS": due, b"TIMER_OUT_MS": due})
        plan.timer_room = self.timer_bits - self.timer_bits // TIMER_RESERVE
        return timer, timer.number_of(0)

    cdef int _redirect(self, _Plan plan, Route route, int queue_id, Route waiting, int waiting_id,
                       dict more) except -1:
        """Make the record that was staged last wait in another queue, with its own one and ``more`` in its properties."""
        more[b"REAL_TOPIC"] = route.name
        more[b"REAL_QID"] = b"%d" % queue_id
        self._add_properties(plan, waiting, waiting_id, more)
        return 0

    cdef int _add_properties(self, _Plan plan, Route waiting, int waiting_id, dict more) except -1:
        """Let the record that was staged last be for a queue, with ``more`` in its properties.

        They are written anew, in the order of a HashMap of Java.
        """
        cdef unsigned char *start
        cdef unsigned char *at
        cdef Frame frame
        cdef bytes text
        cdef Py_ssize_t size
        plan.count -= 1
        plan.size -= plan.sizes[plan.count]
        start = plan.staged + plan.size
        frame_of(start, plan.sizes[plan.count], get_i64(start + R_COMMIT_LOG_OFFSET), &frame)
        pairs = {}
        at = start + frame.properties_at
        for pair in at[:frame.properties_size - CRC_PROPERTY_SIZE].split(b"\x02"):
            if pair:
                name, _, value = pair.partition(b"\x01")
                pairs[name] = value
        pairs.update(more)
        text = b"".join([name + b"\x01" + pairs[name] + b"\x02" for name in order_of_hash_map(pairs)])
        size = PyBytes_GET_SIZE(text) + CRC_PROPERTY_SIZE
        if size + (MOST_ADDED if waiting.topic == TIMER_TOPIC else 0) > MAX_PROPERTIES_BYTES:
            raise PropertiesTooLarge(
                f"a message for topic {pairs.get(b'REAL_TOPIC', b'').decode()!r} that waits in {waiting.topic!r} keeps topic and queue in its "
                f"properties, which then take more than {MAX_PROPERTIES_BYTES} bytes on disk: shorten tags, keys or "
                "properties")
        plan.reserve(frame.topic_at + 64 + MAX_PROPERTIES_BYTES)
        start = plan.staged + plan.size
        put_i32(start + R_QUEUE_ID, waiting_id)
        at = start + frame.topic_at
        (at - 1)[0] = <unsigned char>PyBytes_GET_SIZE(waiting.name)
        memcpy(at, PyBytes_AS_STRING(waiting.name), PyBytes_GET_SIZE(waiting.name))
        at += PyBytes_GET_SIZE(waiting.name) + 2
        memcpy(at, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        self._finish_staged(plan, at + PyBytes_GET_SIZE(text), size)
        return 0

    cdef int _check_file_size(self, _Plan plan) except -1:
        if plan.size + BLANK_SIZE > <Py_ssize_t>self.log_file_bytes:
            raise BodyTooLarge(
                f"a record of {plan.size} bytes; one commit log file holds {self.log_file_bytes - BLANK_SIZE}: the message "
                "is from a store with larger files")
        return 0

    def populate_file(self, Mapping mapping not None, uint64_t base, uint64_t start, uint64_t least, uint64_t most,
                      Mapping behind=None):
        """Populate the pages of one file ahead of the writer, until its end; return how far that is.

        Lets go of those behind the writer, and of those of the file ``behind`` this one when the writer has left it: the
        flush would take each of them from this process by itself, with an interrupt of the other processors.

        Stays ahead by as much as the writer went since the last step, doubled, between ``least`` and ``most`` bytes. The
        GIL is not needed meanwhile: a writer in full run would give it back every 5 ms only. Returns also when the writer
        has left the file, or after :meth:`stop_ahead`.
        """
        cdef uint64_t end = base + mapping.size
        cdef uint64_t populated_to = start
        cdef uint64_t released_to = base
        cdef bint left = behind is not None  # pages of the file behind are still to be let go
        cdef uint64_t seen = load64(self.shared.address + H_PUBLISHED_TO)
        cdef uint64_t published_to, ahead, target
        cdef int failure = 0
        if not base <= start <= end:
            raise ValueError(f"{start} is not inside the file at {base}")
        with nogil:
            while populated_to < end and failure == 0 and not load32(&self.ahead_stopped):
                published_to = load64(self.shared.address + H_PUBLISHED_TO)
                if published_to >= end:
                    populated_to = end
                    break
                if left and published_to > base:
                    madvise(behind.address, behind.size, MADV_DONTNEED)
                    left = False
                if published_to > released_to + 2 * least:
                    release(mapping, base, &released_to, published_to - least)
                ahead = max(least, min(most, 2 * (published_to - seen)))
                seen = published_to
                target = min(end, published_to + ahead)
                failure = self.populate(mapping, base, &populated_to, target)
                if populated_to < end:
                    self.sleep_ahead(published_to + ahead // 2)
        if failure and failure != EINVAL:  # EINVAL: a kernel before 5.14; pages are then made at first touch
            raise OSError(failure, os.strerror(failure))
        return populated_to

    cdef int populate(self, Mapping mapping, uint64_t base, uint64_t *populated_to, uint64_t target) noexcept nogil:
        """In steps, which leave out what the writer has passed meanwhile. Returns an errno."""
        cdef uint64_t step = 256 << 10
        cdef uint64_t start, end, published_to
        while populated_to[0] < target:
            published_to = load64(self.shared.address + H_PUBLISHED_TO)
            start = max(populated_to[0], published_to) - base & ~<uint64_t>4095
            end = min(target - base, (start + step) & ~(step - 1))
            if start < end and madvise(mapping.address + start, end - start, MADV_POPULATE_WRITE):
                return errno
            populated_to[0] = base + max(start, end)
        return 0

    cdef void sleep_ahead(self, uint64_t mark) noexcept nogil:
        """Sleep until an append of this process has passed ``mark``, or for a second."""
        cdef uint32_t seen = load32(&self.ahead_word)
        store64(&self.ahead_mark, mark)
        store32(&self.ahead_waiting, 1)
        if load64_seq(self.shared.address + H_PUBLISHED_TO) <= mark and not load32(&self.ahead_stopped):
            futex_wait(&self.ahead_word, seen, 1000000000)
        store32(&self.ahead_waiting, 0)

    def wait_for_append(self):
        """Sleep until this process appends, or for a second."""
        with nogil:
            self.sleep_ahead(load64(self.shared.address + H_PUBLISHED_TO))

    def stop_ahead(self):
        """End :meth:`populate_file` and :meth:`wait_for_append` in the thread that is in one."""
        store32(&self.ahead_stopped, 1)
        self.wake_ahead()

    cdef void wake_ahead(self) noexcept nogil:
        store32(&self.ahead_waiting, 0)
        add32(&self.ahead_word, 1)
        futex_wake(&self.ahead_word, 2147483647)

    cdef Route _waiting(self, str topic):
        if topic not in self.waiting:
            self.waiting[topic] = self.make_route(topic)
        return <Route?>self.waiting[topic]

    cdef Route _route_to(self, str topic, int queue_id):
        """The route of a topic, made again when it does not know the queue."""
        cdef Route route = self._route(topic)
        cdef int number
        for number in range(route.count):
            if route.queue_ids[number] == queue_id:
                return route
        del self.routes[topic]
        return self._route(topic)

    cdef Route _route(self, str topic):
        cdef PyObject *found = PyDict_GetItem(self.routes, topic)
        if found != NULL:
            return <Route>found
        if topic == SCHEDULE_TOPIC:
            raise MessageRejected(f"topic {topic!r} holds messages that wait for their delay level: give a delay_level")
        if topic == TIMER_TOPIC:
            raise MessageRejected(f"topic {topic!r} holds messages that wait for their time: give a delay or deliver_at")
        if topic == HALF_TOPIC or topic == OPERATION_TOPIC:
            raise MessageRejected(f"topic {topic!r} belongs to transactions: begin one for the topic the message is for")
        route = self.make_route(topic)
        self.routes[topic] = route
        return <Route?>route

    cdef _Plan _take_plan(self, int count):
        cdef _Plan plan = self.spare
        self.spare = None
        if plan is None:
            plan = _Plan.__new__(_Plan)
        plan.size = 0
        plan.count = 0
        plan.delay_ms = 0
        plan.progress_at = plan.progress_from = 0
        plan.done_at = plan.timer_room = 0
        plan.makes_room = False
        plan.guard_at[0] = plan.guard_at[1] = 0
        plan.other_slot = -1
        plan.reserve_records(count)
        return plan

    cdef int _stage(self, _Plan plan, Message message, Route route, int number, str sharding_key, int64_t now,
                    SendResult result) except -1:
        """Write one record but for what is known only under the mutex."""
        cdef object body = message.body
        cdef unsigned char *start
        cdef unsigned char *at
        cdef Py_ssize_t body_size, topic_size, total
        cdef int64_t tags_code = 0
        if type(body) is not bytes:
            body = self.encode_body(body)
        body_size = PyBytes_GET_SIZE(<bytes?>body)
        self._check_body_size(body_size)
        topic_size = PyBytes_GET_SIZE(route.name)
        plan.reserve(RECORD_FIXED_SIZE + body_size + topic_size + 2 * MAX_PROPERTIES_BYTES)
        start = plan.staged + plan.size
        memset(start, 0, RECORD_HEADER_SIZE)
        put_i32(start + R_MAGIC, RECORD_MAGIC)
        put_i32(start + R_QUEUE_ID, route.queue_ids[number])
        put_i32(start + R_FLAG, message.flag)
        put_i32(start + R_SYS_FLAG, message.sys_flag)
        put_i64(start + R_BORN_TIMESTAMP, now)
        memcpy(start + R_BORN_HOST, self.born_host, 8)
        memcpy(start + R_STORE_HOST, self.store_host, 8)
        put_i32(start + R_BODY_SIZE, <int32_t>body_size)
        at = start + RECORD_HEADER_SIZE
        memcpy(at, PyBytes_AS_STRING(body), body_size)
        if body_size:
            put_i32(start + R_BODY_CRC, <int32_t>(rmq_crc32(0, at, body_size) & 0x7FFFFFFF))
        at += body_size
        at[0] = <unsigned char>topic_size
        memcpy(at + 1, PyBytes_AS_STRING(route.name), topic_size)
        at += 1 + topic_size
        total = self._stage_properties(at + 2, message, sharding_key, now, result, &tags_code)
        put_i16(at, <int>total)
        total += at + 2 - start
        put_i32(start, <int32_t>total)
        plan.sizes[plan.count] = <int32_t>total
        plan.tags_codes[plan.count] = tags_code
        plan.count += 1
        plan.size += total
        return 0

    cdef int _check_body_size(self, Py_ssize_t body_size) except -1:
        if body_size > self.max_body_bytes:
            raise BodyTooLarge(
                f"a body of {body_size} bytes is over the limit of {self.max_body_bytes} (max_body_bytes): split it, "
                "or store the data elsewhere and send a reference")
        return 0

    cdef Py_ssize_t _stage_properties(self, unsigned char *at, Message message, str sharding_key, int64_t now,
                                      SendResult result, int64_t *tags_code) except -1:
        """Write the properties with room for the CRC behind them; return their size."""
        cdef unsigned char *start = at
        cdef Py_ssize_t used = CRC_PROPERTY_SIZE + 42
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t name_size = 0
        cdef const char *text
        cdef const char *name
        cdef bint first = True
        if message.keys:
            used += 5
            for key in message.keys:
                text = text_of(<str?>key, "key", True, &size)
                used += size + 1
                if used > MAX_PROPERTIES_BYTES:
                    raise_properties_too_large(message)
                if first:
                    memcpy(at, b"KEYS\x01", 5)
                    at += 5
                else:
                    at[0] = 32
                    at += 1
                first = False
                memcpy(at, text, size)
                at += size
            at[0] = 2
            at += 1
        if message.tags:
            text = text_of(message.tags, "tags", False, &size)
            used += size + 6
            if used > MAX_PROPERTIES_BYTES:
                raise_properties_too_large(message)
            tags_code[0] = hash_utf8(<const unsigned char *>text, size)
            at = put_property(at, b"TAGS", 4, text, size)
        if message.properties:
            for key, value in message.properties.items():
                if key in RESERVED_PROPERTIES:
                    raise MessageRejected(f"property {key!r} belongs to the queue itself: choose another name")
                name = text_of(<str?>key, "property name", False, &name_size)
                text = text_of(<str?>value, "property value", False, &size)
                if name_size == 0 or size == 0:
                    raise MessageRejected(f"property {key!r}: {value!r}: RocketMQ drops empty names and values")
                used += name_size + size + 2
                if used > MAX_PROPERTIES_BYTES:
                    raise_properties_too_large(message)
                at = put_property(at, name, name_size, text, size)
        if sharding_key:
            text = text_of(sharding_key, "sharding key", False, &size)
            used += size + 15
            if used > MAX_PROPERTIES_BYTES:
                raise_properties_too_large(message)
            at = put_property(at, b"__SHARDINGKEY", 13, text, size)
        if result.unique_key[0] == 0:
            self._put_unique_key(<unsigned char *>result.unique_key, now)
        at = put_property(at, b"UNIQ_KEY", 8, result.unique_key, 32)
        return at - start + CRC_PROPERTY_SIZE

    cdef void _put_unique_key(self, unsigned char *at, int64_t now):
        """MessageClientIDSetter: address, process, time within the month, counter; the process part is random here."""
        if not self.month_start <= <uint64_t>now < self.month_end:
            self.month_start, self.month_end = self.files.month(now)
        memcpy(at, self.unique_prefix, 20)
        put_hex(at + 20, <uint64_t>now - self.month_start, 8)
        self.counter += 1
        put_hex(at + 28, self.counter, 4)

    cdef int _commit(self, _Plan plan, int number, int64_t now, Section *section) except -1:
        """Run the append section, getting what it needs between the attempts. 0 when the progress word, or a guarded one, had moved on.

        The first attempt takes the address that the last one to this queue has noted: with 10,000 queues each object on
        the way to it would have to come from main memory. It holds no reference, and so it keeps the GIL.
        """
        cdef int failure
        cdef bint noted = self._point_noted(number, section)
        cdef int outcome = NEED_LOG_FILE
        cdef tuple log_files
        cdef tuple queue_files
        cdef list held = None  # what was provided, until it is used, were the mapping cache ever so small
        cdef Mapping entries, more_entries, other_entries
        section.shared = self.shared.address
        section.slot = self.shared.address + self.queue_table_at + number * self.queue_slot_size
        section.log_file_bytes = self.log_file_bytes
        section.entries_per_file = self.entries_per_file
        section.staged = plan.staged
        section.staged_size = plan.size
        section.sizes = plan.sizes
        section.tags_codes = plan.tags_codes
        section.count = plan.count
        section.delay_ms = plan.delay_ms
        section.progress_at = plan.progress_at
        section.progress_from = plan.progress_from
        section.timer = section.shared + self.timer_at
        section.done_at = plan.done_at
        section.done_bit = plan.done_bit
        section.done_offset = plan.done_offset
        section.timer_room = plan.timer_room
        section.makes_room = plan.makes_room
        section.guard_at = plan.guard_at
        section.guard_value = plan.guard_value
        section.other_slot = NULL
        if plan.other_slot >= 0:
            section.other_slot = section.shared + self.queue_table_at + plan.other_slot * self.queue_slot_size
            noted = False  # an address that is noted holds no reference
        section.now = now
        while True:
            log_files = self.log_files  # held while the section runs: rule 5
            self._point_log(log_files, section)
            if not noted:
                queue_files = self._queue_files(number)
                entries, more_entries = lent(queue_files, 0), lent(queue_files, 2)
                self._point_queue(queue_files, entries, more_entries, section)
            if plan.other_slot >= 0:
                queue_files = self._queue_files(plan.other_slot)
                other_entries = lent(queue_files, 0)
                section.other_entries = NULL if other_entries is None else other_entries.address
                section.other_first_entry = 0 if other_entries is None else queue_files[1]
            failure = mutex_try(section.shared + H_APPEND_MUTEX, 200)
            if failure == 0:
                outcome = append_section(section)
                mutex_release(section.shared + H_APPEND_MUTEX)
            elif failure == EBUSY and noted:
                noted = False
                continue
            elif failure == EBUSY:
                with nogil:
                    failure = locked_append(section, self.timeout_ns, self.busy_ns, &outcome)
            if failure:
                self._raise_lock_failure(failure)
            if outcome == DONE:
                break
            if outcome == OUTDATED:
                return 0
            noted = False
            if held is None:
                held = []
            held.append(self._provide(outcome, number, plan))
        if not noted:
            self._note(number, section)
        reach_point(AT_APPEND_FINISHED)
        if section.lanes:
            with nogil:
                wake_lanes(section.shared, section.lanes)
        if section.rolled:
            self.files.rolled()
        if load32(&self.ahead_waiting) and section.commit_log_offset + section.staged_size > load64(&self.ahead_mark):
            self.wake_ahead()
        return 1

    cdef tuple _queue_files(self, int slot):
        while slot >= len(self.queue_files):
            self.queue_files.append(None)
        return self.queue_files[slot]

    cdef bint _point_noted(self, int number, Section *section):
        if number >= self.noted_count or self.noted[number].unmapped != unmapped:
            return False
        section.entries[0] = self.noted[number].entries
        section.first_entry[0] = self.noted[number].first_entry
        section.entries[1] = NULL
        return True

    cdef int _note(self, int number, Section *section) except -1:
        cdef int file = 0 if section.entries[1] == NULL else 1
        cdef void *grown
        if number >= self.noted_count:
            grown = realloc(self.noted, (number + 1024) * sizeof(NotedFile))
            if grown == NULL:
                raise MemoryError()
            self.noted = <NotedFile *>grown
            memset(self.noted + self.noted_count, 0, (number + 1024 - self.noted_count) * sizeof(NotedFile))
            self.noted_count = number + 1024
        self.noted[number].entries = section.entries[file]
        self.noted[number].first_entry = section.first_entry[file]
        self.noted[number].unmapped = unmapped
        return 0

    def __dealloc__(self):
        free(self.noted)

    cdef void _point_log(self, tuple log_files, Section *section):
        section.log[0] = section.log[1] = NULL
        if log_files is not None:
            section.log[0] = (<Mapping>log_files[0]).address
            section.log_base[0] = log_files[1]
            if log_files[2] is not None:
                section.log[1] = (<Mapping>log_files[2]).address
                section.log_base[1] = log_files[3]

    cdef void _point_queue(self, tuple queue_files, Mapping entries, Mapping more_entries, Section *section):
        section.entries[0] = section.entries[1] = NULL
        if entries is not None:
            section.entries[0] = entries.address
            section.first_entry[0] = queue_files[1]
        if more_entries is not None:
            section.entries[1] = more_entries.address
            section.first_entry[1] = queue_files[3]

    cdef tuple _provide(self, int outcome, int slot, _Plan plan):
        if outcome == POISONED:
            raise StorePoisoned(
                f"a flush failed with errno {load64(self.shared.address + H_POISONED)}; nothing was written. "
                "Look at the disk, then restart every process that uses the store")
        if outcome == TIMER_FULL:
            raise TimerFull(
                f"the timer keeps {self.timer_bits} messages at most, those included that are behind the oldest one that "
                "waits; nothing was written. Send with shorter delays, or see that a process with housekeeping runs")
        if outcome == DISK_FULL:
            self.files.check_room()
        elif outcome == NEED_REPAIR:
            self.files.repair()
            return None
        if outcome == NEED_LOG_FILE:
            self.log_files = self.files.log_files(plan.size)
            return self.log_files
        if outcome == NEED_OTHER_QUEUE_FILE:
            slot = plan.other_slot
        provided = self.files.queue_files(slot, 1 if outcome == NEED_OTHER_QUEUE_FILE else plan.count)
        self.queue_files[slot] = borrowed(provided)
        return provided

    cdef int _raise_lock_failure(self, int failure) except -1:
        owner = mutex_owner(self.shared.address + H_APPEND_MUTEX)
        if failure == EBUSY:
            raise PageCacheBusy(
                f"one append, by thread {owner}, has kept the append lock for {self.busy_ns // 1000000} ms "
                "(page_cache_busy_timeout_ms); nothing was written. The disk is slower than the senders, or the holder is "
                "stopped: send less, and try again")
        if failure == ETIMEDOUT:
            raise StoreBusy(
                f"waited {self.timeout_ns // 1000000} ms for the append lock, held by thread {owner}; nothing was "
                "written. The holder is stopped or starved: try again, or continue or kill it")
        raise OSError(failure, os.strerror(failure))


cdef int check_wait(int delay_level, int64_t due_ms) except -1:
    check_level(delay_level)
    if due_ms and (delay_level or due_ms <= MOST_TAGS_CODE):
        raise ValueError(f"due_ms={due_ms} with delay_level={delay_level}: a time in ms since 1970, or a level, not both")
    return 0


cdef int place_result(SendResult result, object queue, Section *section) except -1:
    """Say where the first record of an append stands, and where its last one ends."""
    result.queue = queue
    result.queue_offset = section.queue_offset
    result.commit_log_offset = section.commit_log_offset
    result.commit_log_end = section.commit_log_offset + section.staged_size
    return 0


cdef void release(Mapping mapping, uint64_t base, uint64_t *released_to, uint64_t target) noexcept nogil:
    """Take pages out of this process's page table. They stay in the page cache, dirty as they are."""
    cdef uint64_t start = released_to[0] - base
    cdef uint64_t end = (target - base) & ~<uint64_t>4095
    if end > start:
        madvise(mapping.address + start, end - start, MADV_DONTNEED)
        released_to[0] = base + end


cdef int32_t get_queue_id(const unsigned char *slot) noexcept nogil:
    return <int32_t>load32(slot)


cdef bint has_topic(const unsigned char *slot, const unsigned char *record, Frame *frame) noexcept nogil:
    return (<Py_ssize_t>load32(slot + Q_TOPIC_SIZE) == frame.topic_size
            and memcmp(slot + Q_TOPIC, record + frame.topic_at, frame.topic_size) == 0)


cdef int check_batch(list batch) except -1:
    """A compressed batch has one topic and one tag: the consume queue has one entry for it, by which tags select."""
    cdef Message first, message
    for item in batch:
        if not isinstance(item, Message):
            raise TypeError(f"a batch holds Message objects, not {type(item).__name__}")
    first = batch[0]
    for message in batch:
        if message.topic != first.topic:
            raise MessageRejected(f"a batch goes to one queue: topic {message.topic!r} in a batch for {first.topic!r}")
        if message.sys_flag:
            raise MessageRejected("a message whose body is compressed already is no part of a compressed batch: send it alone")
        if (message.tags or None) != (first.tags or None):
            raise MessageRejected(
                f"a compressed batch has one tag, by which it is selected: {message.tags!r} in a batch of {first.tags!r}; "
                "send a batch for each tag, or without compression")
    return 0


cdef tuple keys_of(list batch):
    """Every key in a batch once, in order: what its record is found by."""
    cdef Message message
    cdef dict keys = {}
    for message in batch:
        for key in message.keys:
            keys[key] = None
    return tuple(keys)


cdef int raise_properties_too_large(Message message) except -1:
    raise PropertiesTooLarge(
        f"tags, keys and properties of a message for topic {message.topic!r} take more than {MAX_PROPERTIES_BYTES} "
        "bytes on disk: shorten them")
