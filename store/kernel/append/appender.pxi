# --- the appender: everything that appends to the log -----------------------------------------------------------------

cdef enum:
    TIMER_RESERVE = 64            # one part in so many of the timer is kept for rolls and cancels


@cython.final
cdef class Appender:
    """Appends messages for one process. Every append finds a route, stages records, and finishes.

    An append that raises loses its staging, and the next one makes another.
    """

    cdef Mapping shared
    cdef _Routes routes
    cdef _RecordWriter records
    cdef _Committer committer
    cdef readonly Ahead ahead
    cdef _Staging spare                  # of the last append, or None

    def __init__(self, Mapping shared not None, object files, object make_route, object is_current,
                 object encode_body, *,
                 uint64_t log_file_bytes, uint64_t entries_per_file, Py_ssize_t max_body_bytes, int64_t timeout_ms,
                 int64_t busy_timeout_ms, Py_ssize_t queue_table_at, Py_ssize_t queue_slot_size, Py_ssize_t changes_at, Py_ssize_t timer_at,
                 uint64_t timer_bits, bytes born_host not None, bytes store_host not None, bytes unique_prefix not None):
        self.shared = shared
        self.routes = _Routes.__new__(_Routes, make_route, is_current, shared, changes_at)
        self.records = _RecordWriter.__new__(
            _RecordWriter, encode_body, files.month, max_body_bytes, born_host, store_host, unique_prefix)
        self.ahead = Ahead.__new__(Ahead)
        self.ahead.shared = shared
        self.committer = _Committer.__new__(_Committer)
        self.committer.shared = shared
        self.committer.files = files
        self.committer.ahead = self.ahead
        self.committer.queue_files = []
        self.committer.log_file_bytes = log_file_bytes
        self.committer.entries_per_file = entries_per_file
        self.committer.timeout_ns = timeout_ms * 1000000
        self.committer.busy_ns = busy_timeout_ms * 1000000
        self.committer.queue_table_at = queue_table_at
        self.committer.queue_slot_size = queue_slot_size
        self.committer.timer_at = timer_at
        self.committer.timer_bits = timer_bits

    def add_route(self, Route route not None):
        self.routes.routes[route.topic] = route

    def append(self, Message message not None, str sharding_key=None, int delay_level=0, int64_t due_ms=0):
        check_wait(delay_level, due_ms)
        cdef Route route = self.routes.find(message.topic)
        cdef int number = route.pick(route.sharding(message, sharding_key))
        cdef _Staging staging = self.begin(1)
        cdef SendResult result = SendResult.__new__(SendResult)
        self.records.stage(staging, message, route, route.queue_ids[number], sharding_key, result)
        if delay_level or due_ms:
            route = self.make_wait(staging, route, route.queue_ids[number], delay_level, due_ms)
            number = route.number_of(max(0, delay_level - 1))
        return self.finish(staging, route, number, result)

    def record_size(self, Message message not None, str sharding_key=None):
        cdef Route route = self.routes.find(message.topic)
        cdef _Staging staging
        route.sharding(message, sharding_key)
        staging = self.begin(1)
        self.records.stage(staging, message, route, route.queue_ids[0], sharding_key, SendResult.__new__(SendResult))
        self.spare = staging
        return staging.section.plan.size

    def queue_of(self, Message message not None, str sharding_key=None):
        cdef Route route = self.routes.find(message.topic)
        cdef str sharding = route.sharding(message, sharding_key)
        return None if sharding is None else route.pick(sharding)

    def append_batch(self, messages, str sharding_key=None, int delay_level=0, int64_t due_ms=0):
        cdef list batch = messages if type(messages) is list else list(messages)
        cdef list results = []
        cdef _Staging staging
        cdef SendResult result
        cdef Route route
        cdef Route target
        cdef int number
        check_wait(delay_level, due_ms)
        if not batch:
            return results
        check_messages(batch)
        if <uint64_t>len(batch) > self.committer.entries_per_file:
            raise BatchTooLarge(
                f"{len(batch)} messages are over the limit of {self.committer.entries_per_file} a batch, the entries of one "
                "consume queue file: send a smaller batch")
        target = route = self.routes.find((<Message>batch[0]).topic)
        number = route.pick(route.sharding(<Message>batch[0], sharding_key))
        staging = self.begin(<int>len(batch))
        for message in batch:
            check_member(batch, <Message>message, route, number, sharding_key)
            result = SendResult.__new__(SendResult)
            self.records.stage(staging, <Message>message, route, route.queue_ids[number], sharding_key, result)
            if delay_level or due_ms:
                target = self.make_wait(staging, route, route.queue_ids[number], delay_level, due_ms)
            results.append(result)
        if delay_level or due_ms:
            number = target.number_of(max(0, delay_level - 1))
        self.check_batch_size(staging)
        self.committer.commit(staging, target.slots[number])
        place_results(results, target.queues[number], staging)
        self.spare = staging
        return results

    def append_inner_batch(self, messages, pack, str sharding_key=None, *, int64_t most_bytes):
        cdef list batch = messages if type(messages) is list else list(messages)
        cdef list results = []
        cdef _Staging staging
        cdef SendResult result
        cdef Message outer
        cdef Route route
        cdef int number
        if not batch:
            return results
        route = self.route_of_inner(batch)
        number = route.pick(sharding_key)
        staging = self.begin(1)
        content = self.records.stage_inner(staging, batch, sharding_key, results, most_bytes)
        packed, sys_flag = pack(content)
        if len(packed) > self.records.max_body_bytes:
            raise BatchTooLarge(
                f"{len(batch)} messages take {len(packed)} bytes compressed; the limit of a record is "
                f"{self.records.max_body_bytes} (max_body_bytes): send a smaller batch")
        outer = Message(route.topic, packed, tags=(<Message>batch[0]).tags, keys=keys_of(batch),
                        properties={"INNER_NUM": str(len(batch))})
        outer.sys_flag = <int>sys_flag | SYS_FLAG_INNER_BATCH
        self.records.stage(staging, outer, route, route.queue_ids[number], sharding_key, results[0])
        self.finish(staging, route, number, results[0])
        for result in results:
            place_result(result, route.queues[number], &staging.section)
        return results

    def append_copy(self, ReceivedMessage message not None, str topic not None, int queue_id, object properties not None,
                    *, int reconsume_times, int delay_level=0, int64_t due_ms=0):
        cdef Route route = self.routes.to(topic, queue_id)
        cdef int number = route.landing(queue_id, message)
        cdef SendResult result = SendResult.__new__(SendResult)
        cdef _Staging staging
        check_wait(min(delay_level, LEVELS), due_ms)
        queue_id = route.queue_ids[number]
        staging = self.begin(1)
        stage_copy(staging, message, route, queue_id, reconsume_times)
        copy_properties(staging, properties, topic)
        if delay_level or due_ms:
            delay_level = min(delay_level, LEVELS)
            route = self.make_wait(staging, route, queue_id, delay_level, due_ms)
            number = route.number_of(max(0, delay_level - 1))
        name_result(result, properties.get("UNIQ_KEY") or message.message_id)
        return self.finish(staging, route, number, result)

    def deliver(self, ReceivedMessage message not None, str topic not None, int queue_id, Py_ssize_t progress_at):
        cdef Route route = self.routes.to(topic, queue_id)
        cdef int number = route.landing(queue_id, message)
        cdef _Staging staging = self.begin(1)
        stage_copy(staging, message, route, route.queue_ids[number], message.delivery_attempt - 1)
        keep_properties(staging, message)
        self.move_progress(staging, progress_at, message)
        return self.finish(staging, route, number, named_as(message))

    def append_half(self, Message message not None, str group not None, str sharding_key=None, int immunity_s=0):
        cdef Route route = self.routes.find(message.topic)
        cdef Route halves = self.routes.waiting(HALF_TOPIC)
        cdef int queue_id = route.queue_ids[route.pick(route.sharding(message, sharding_key))]
        cdef _Staging staging = self.begin(1)
        cdef SendResult result = SendResult.__new__(SendResult)
        more = {b"TRAN_MSG": b"true", b"PGROUP": group.encode()}
        if immunity_s:
            more[b"CHECK_IMMUNITY_TIME_IN_SECONDS"] = b"%d" % immunity_s
        self.records.stage(staging, message, route, queue_id, sharding_key, result)
        redirect(staging, route, queue_id, halves, halves.queue_ids[0], more)
        return self.finish(staging, halves, 0, result)

    def decide(self, ReceivedMessage half not None, str topic, int queue_id, object guards not None):
        cdef Route operations = self.routes.waiting(OPERATION_TOPIC)
        cdef int operation = operations.number_of(half.queue_id)
        cdef Route route = operations if topic is None else self.routes.to(topic, queue_id)
        cdef int number = operation if topic is None else route.landing(queue_id, half)
        cdef _Staging staging = self.begin(2)
        cdef unsigned char *start
        self.guard(staging, guards)
        if topic is not None:
            stage_copy(staging, half, route, route.queue_ids[number], half.delivery_attempt - 1)
            start = staging.last()
            put_i32(start + R_SYS_FLAG, get_i32(start + R_SYS_FLAG) & ~SYS_FLAG_TRANSACTION | SYS_FLAG_COMMITTED)
            put_i64(start + prepared_offset_at(start), half.commit_log_offset)
            keep_properties(staging, half)
            staging.section.plan.other_queue = operations.slots[operation]
        self.records.stage_operation(staging, operations, half)
        return self.finish(staging, route, number, named_as(half))

    def pass_half(self, ReceivedMessage half not None, str topic not None, object properties not None,
                  Py_ssize_t progress_at, object guards not None):
        cdef Route route = self.routes.waiting(topic)
        cdef bint renewed = topic == HALF_TOPIC
        cdef int queue_id = half.queue_id if renewed else route.queue_ids[0]
        cdef int number = route.number_of(queue_id)
        cdef _Staging staging = self.begin(1)
        pairs = {(<str?>name).encode(): value for name, value in properties.items()}
        stage_copy(staging, half, route, queue_id, 0 if renewed else half.delivery_attempt - 1)
        if renewed:
            put_i32(staging.last() + R_FLAG, 0)
        copy_properties(staging, {name.decode(): pairs[name] for name in order_of_hash_map(pairs)}, topic)
        self.guard(staging, guards)
        self.move_progress(staging, progress_at, half)
        return self.finish(staging, route, number, named_as(half))

    cdef _Staging begin(self, int count):
        """Return an empty staging for so many records."""
        cdef _Staging staging = self.spare
        self.spare = None
        if staging is None:
            staging = self.committer.new_staging()
        staging.begin(count)
        return staging

    cdef SendResult finish(self, _Staging staging, Route route, int number, SendResult result):
        """Append what is staged, and place the result.

        Returns None and changes nothing when a word of the plan had moved on.
        """
        self.check_file_size(staging)
        if self.committer.commit(staging, route.slots[number]):
            place_result(result, route.queues[number], &staging.section)
        else:
            result = None
        self.spare = staging
        return result

    cdef Route make_wait(self, _Staging staging, Route route, int queue_id, int delay_level, int64_t due_ms):
        """Let the record that was staged last wait, in its delay level or in the timer; return the route to there.

        CommitLog.asyncPutMessage. TIMER_OUT_MS is when RocketMQ 5 takes it out (HookUtils.transformTimerMessage), here
        without rounding.
        """
        cdef Route waiting
        cdef uint64_t timer_bits = self.committer.timer_bits
        if delay_level:
            waiting = self.routes.waiting(SCHEDULE_TOPIC)
            redirect(staging, route, queue_id, waiting, delay_level - 1, {b"DELAY": b"%d" % delay_level})
            staging.section.plan.delay_ms = DELAY_MS[delay_level - 1]
        else:
            waiting = self.routes.waiting(TIMER_TOPIC)
            due = b"%d" % due_ms
            redirect(staging, route, queue_id, waiting, 0, {b"TIMER_DELIVER_MS": due, b"TIMER_OUT_MS": due})
            staging.section.plan.timer_room = timer_bits - timer_bits // TIMER_RESERVE
        return waiting

    cdef int move_progress(self, _Staging staging, Py_ssize_t at, ReceivedMessage message) except -1:
        """Let this append move a word from the queue offset of ``message`` to the next one."""
        self.check_word(at)
        staging.section.plan.progress_at = at
        staging.section.plan.progress_from = message.queue_offset
        return 0

    cdef int guard(self, _Staging staging, object words) except -1:
        """Append nothing unless the words at these bytes of the runtime file have these values."""
        cdef int number
        if len(words) > GUARDS:
            raise ValueError(f"{len(words)} guards: at most {GUARDS}")
        for number, (at, value) in enumerate(words.items()):
            self.check_word(at)
            staging.section.plan.guard_at[number] = at
            staging.section.plan.guard_value[number] = value
        return 0

    cdef int check_word(self, Py_ssize_t at) except -1:
        if not 0 < at <= self.shared.size - 8 or at % 8:
            raise ValueError(f"byte {at} is not a word of the runtime file")
        return 0

    cdef int check_file_size(self, _Staging staging) except -1:
        if staging.section.plan.size + BLANK_RECORD_SIZE > self.committer.log_file_bytes:
            raise BodyTooLarge(
                f"a record of {staging.section.plan.size} bytes; one commit log file holds "
                f"{self.committer.log_file_bytes - BLANK_RECORD_SIZE}: the message is from a store with larger files")
        return 0

    cdef int check_batch_size(self, _Staging staging) except -1:
        if staging.section.plan.size + BLANK_RECORD_SIZE > self.committer.log_file_bytes:
            raise BatchTooLarge(
                f"{staging.section.plan.count} records take {staging.section.plan.size} bytes; one commit log file holds "
                f"{self.committer.log_file_bytes - BLANK_RECORD_SIZE}: send a smaller batch")
        return 0

    cdef Route route_of_inner(self, list batch):
        """The route of a compressed batch. Raises BatchTooLarge or MessageRejected for a batch that cannot be one."""
        cdef Route route
        if len(batch) > MOST_INNER:
            raise BatchTooLarge(
                f"{len(batch)} messages are over the limit of {MOST_INNER} a compressed batch: send a smaller batch")
        check_inner(batch)
        route = self.routes.find((<Message>batch[0]).topic)
        if route.compact:
            raise MessageRejected(
                f"topic {route.topic!r} is compact: it keeps the latest record of each key, and a compressed batch is one "
                "record for all of its keys: send the batch without compression, or with that of the producer")
        return route


cdef int check_wait(int delay_level, int64_t due_ms) except -1:
    check_level(delay_level)
    if due_ms and (delay_level or due_ms < 0):
        raise ValueError(f"due_ms={due_ms} with delay_level={delay_level}: a time in ms since 1970, or a level, not both")
    return 0
