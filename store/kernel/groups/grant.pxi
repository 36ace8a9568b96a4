# --- the grant: taking and acknowledging the messages of one queue ----------------------------------------------------

cdef enum:
    MOST_LOOKED_AT = 1 << 20    # entries that one call of take looks at: then its caller gets a word in
    MOST_ASKED_ABOUT = 1 << 13  # the same, when Python is asked about messages
    MOST_UNWANTED = 1024        # messages that are finished under one lock

cdef enum:  # what became of the message at an offset
    TAKEN = 0
    UNWANTED = 1                # nothing to deliver: it is to be finished
    MOVED = 2                   # messages were skipped or removed, and the offset is behind them: look again
    REVOKED = 3                 # the epoch is old


@cython.final
cdef class QueueGrant:
    """One message queue, granted to one consumer of a group under one epoch. One thread at a time takes."""

    cdef Mapping shared
    cdef unsigned char *slot            # group-queue
    cdef unsigned char *queue_slot
    cdef _QueueReader reader
    cdef readonly object queue
    cdef readonly int queue_slot_number
    cdef readonly int group_queue       # number of the slot in the group-queue table
    cdef readonly uint64_t epoch
    cdef readonly uint64_t next_offset
    cdef int64_t timeout_ns
    cdef Lending lending                # of what a call that goes on has left; ``running`` is NULL in every other grant
    cdef uint64_t taken                 # records of the present call of take, and their bytes
    cdef uint64_t taken_bytes
    cdef readonly uint64_t skipped      # messages that were finished because they are not wanted
    cdef public uint64_t expired        # messages removed before they were taken, for the caller to report and clear

    def __init__(self, Mapping shared not None, Py_ssize_t group_queue_at, Py_ssize_t queue_at, int queue_slot_number,
                 object queue, uint64_t epoch, object files, TagSet tags not None, *, int group_queue,
                 uint64_t log_file_bytes, uint64_t entries_per_file, int64_t timeout_ms, int64_t max_opened_body_bytes,
                 object compacted=None):
        cdef _QueueReader reader = _QueueReader.__new__(_QueueReader)
        self.shared = reader.shared = shared
        self.slot = reader.slot = shared.address + group_queue_at
        self.queue_slot = reader.queue_slot = shared.address + queue_at
        self.queue_slot_number = reader.queue_slot_number = queue_slot_number
        self.group_queue = group_queue
        self.queue = reader.queue = queue
        self.epoch = epoch
        self.timeout_ns = timeout_ms * 1000000
        self.reader = reader
        reader.files = files
        reader.tags = tags
        reader.log_file_bytes = log_file_bytes
        reader.entries_per_file = entries_per_file
        reader.max_opened_body_bytes = max_opened_body_bytes
        reader.compacted = compacted
        reader.damaged = []
        self._acknowledge(NULL, 0, COUNT_HANDLED)  # finishes a move that a dead owner left half done
        self.next_offset = load64(self.slot + G_COMMITTED_OFFSET)

    @property
    def committed_offset(self):
        return load64(self.slot + G_COMMITTED_OFFSET)

    @property
    def max_offset(self):
        return load64(self.queue_slot + Q_MAX_OFFSET)

    @property
    def has_more(self):
        return load64(self.queue_slot + Q_MAX_OFFSET) > self.next_offset

    @property
    def has_unopened(self):
        return self.reader.has_unopened

    @property
    def damaged(self):
        return self.reader.damaged

    @property
    def valid(self):
        return self.is_valid()

    cdef bint is_valid(self) noexcept:
        if self.lending.running != NULL:
            return is_lent(self.slot, &self.lending)
        return load64(self.slot + G_EPOCH) == self.epoch

    def lent_to(self, Running running not None):
        cdef QueueGrant lent = QueueGrant.__new__(QueueGrant)
        lent.shared = self.shared
        lent.slot = self.slot
        lent.queue_slot = self.queue_slot
        lent.queue = self.queue
        lent.queue_slot_number = self.queue_slot_number
        lent.group_queue = self.group_queue
        lent.epoch = self.epoch
        lent.timeout_ns = self.timeout_ns
        lent.lending.running = running.slot
        lent.lending.member = running.member
        lent.lending.incarnation = running.incarnation
        lent.lending.group_queue = self.group_queue
        return lent

    def is_between(self, Running running not None):
        if load32(running.slot + U_GROUP_QUEUE) != <uint32_t>self.group_queue:
            return False
        return running.began == 0 or is_finished(self.slot, load64(running.slot + U_QUEUE_OFFSET))

    def is_finished(self, uint64_t offset):
        return is_finished(self.slot, offset)

    def first_unfinished(self, uint64_t offset):
        return held_number(self.slot, offset)

    @property
    def paused(self):
        return load64(self.slot + G_PAUSED) != 0

    @property
    def lease_until(self):
        return load64(self.slot + G_LEASE_UNTIL)

    @property
    def lease_is_over(self):
        return 0 < <int64_t>load64(self.slot + G_LEASE_UNTIL) < boottime_ns()

    @property
    def flow_control(self):
        return load64(self.slot + G_FLOW_CONTROL)

    def show(self, uint64_t flow_control):
        store64(self.slot + G_FLOW_CONTROL, flow_control)

    def renew(self, int64_t lease_ms):
        return self._end_lease_at(boottime_ns() + lease_ms * 1000000)

    def release(self):
        return self._end_lease_at(0)

    def arm(self, int lane):
        or64(self.queue_slot + Q_WAITING_LANES, <uint64_t>1 << lane)
        return load64_seq(self.queue_slot + Q_MAX_OFFSET) > self.next_offset

    def take(self, Py_ssize_t limit, uint64_t span):
        cdef list messages
        self.taken = self.taken_bytes = 0
        messages = self._take(limit, span)
        if self.taken:
            self.count_delivered(self.taken, self.taken_bytes)
        return messages

    cdef list _take(self, Py_ssize_t limit, uint64_t span):
        cdef list messages = []
        cdef list unwanted = []
        cdef uint64_t offset = self.next_offset
        cdef uint64_t low = load64(self.queue_slot + Q_MIN_OFFSET)
        cdef uint64_t most = offset + (MOST_LOOKED_AT if self.reader.tags.passes is None else MOST_ASKED_ABOUT)
        cdef uint64_t end
        cdef int outcome
        if load64(self.slot + G_EPOCH) != self.epoch:
            return messages
        if load64(self.slot + G_COMMITTED_OFFSET) < low:
            if not self._expire(low, offset):
                return messages
            offset = max(offset, low)
        if self.reader.tags.count or self.reader.tags.passes is not None or self.reader.compacted is not None:
            span = min(span, <uint64_t>ACK_WINDOW)  # an unwanted message is finished by its bit
        end = self._window_end(span)
        while offset < end and len(messages) < limit and offset < most:
            if is_finished(self.slot, offset):
                offset += 1
                continue
            outcome = self._next(&offset, span, messages)
            if outcome == REVOKED:
                return messages
            if outcome == UNWANTED:
                unwanted.append(offset)
            if outcome != MOVED:
                offset += 1
            if len(unwanted) == MOST_UNWANTED:
                self.next_offset = offset
                if not self._finish_unwanted(unwanted):
                    return messages
                unwanted = []
                outcome = MOVED
            if outcome == MOVED:
                end = self._window_end(span)
        self.next_offset = offset
        store64(self.slot + G_TAKEN_TO, offset)
        if unwanted:
            self._finish_unwanted(unwanted)
        return messages

    cdef inline uint64_t _window_end(self, uint64_t span) noexcept:
        """Where taking ends: at the last message, or ``span`` behind the committed offset."""
        return min(load64(self.queue_slot + Q_MAX_OFFSET), load64(self.slot + G_COMMITTED_OFFSET) + span)

    cdef int _next(self, uint64_t *offset, uint64_t span, list messages) except -1:
        """Put the message at an offset into ``messages``, or say why not."""
        cdef Entry entry
        cdef object message
        cdef int64_t log_begin = load64(self.shared.address + H_MIN_OFFSET)
        if self.reader.compacted is not None and offset[0] < self.reader.log_low:
            message = self.reader.compacted_message(offset[0])
        elif not self.reader.read_entry(offset[0], &entry) or 0 <= entry.commit_log_offset < log_begin:
            return self._pass_removed(offset, &entry)
        elif self.reader.tags.may_match(entry.tags_code):
            message = self.reader.message(offset[0], &entry)
        else:
            return MOVED if self._skip(offset, span, log_begin) else REVOKED
        if message is None:
            return UNWANTED
        if message is _GONE:
            return self._pass_removed(offset, &entry)
        self.taken += 1
        if type(message) is list:
            messages += <list>message
            self.taken_bytes += entry.size
        else:
            messages.append(message)
            self.taken_bytes += get_i32((<ReceivedMessage>message).at + R_TOTAL_SIZE)
        return TAKEN

    cdef int _pass_removed(self, uint64_t *offset, const Entry *entry) except -1:
        """Move an offset whose message is not there behind what retention has removed, or to the compacted file."""
        cdef uint64_t low = self.reader.oldest()
        if low <= offset[0] and not self.reader.is_in_compacted(offset[0]):
            self.reader.damage(offset[0], entry, FOUND_BAD_OFFSET)  # an entry between good ones is damaged
            return UNWANTED
        if low > offset[0] and not self._expire(low, offset[0]):
            return REVOKED
        offset[0] = max(low, offset[0])
        return MOVED

    cdef bint _finish_unwanted(self, list offsets) except -1:
        self.skipped += len(offsets)
        return self._acknowledge_offsets(offsets, COUNT_SKIPPED)

    def acknowledge(self, ReceivedMessage message not None):
        cdef uint64_t offset = get_i64(message.at + R_QUEUE_OFFSET)
        message.opened = None  # a batch of messages holds each of them until all are finished
        if message.rest is not None and finish_inner(message):
            return self._hold_behind(offset, message.rest)
        return self._acknowledge(&offset, 1, COUNT_HANDLED)

    def finish(self, list messages not None):
        cdef ReceivedMessage message = None
        cdef list offsets = []
        for message in messages:
            if message.rest is None or finish_inner(message) == 0:
                offsets.append(get_i64(message.at + R_QUEUE_OFFSET))
        if message is not None and message.rest is not None and get_i32(<unsigned char *>PyByteArray_AS_STRING(message.rest)):
            self._hold_behind(get_i64(message.at + R_QUEUE_OFFSET), message.rest)
        return offsets

    def acknowledge_offsets(self, list offsets not None):
        return self._acknowledge_offsets(offsets, COUNT_HANDLED)

    def give_back(self, list offsets not None, *, bint dead_lettered):
        return self._acknowledge_offsets(offsets, COUNT_DEAD_LETTERED if dead_lettered else COUNT_RETRIED)

    def count_failed(self, uint64_t attempts):
        add64(self.slot + G_FAILED, attempts)

    cpdef count_delivered(self, uint64_t messages, uint64_t size):
        add64(self.slot + G_DELIVERED, messages)
        add64(self.slot + G_BYTES_OUT, size)

    def begin(self, ReceivedMessage message not None):
        cdef Attempt attempt
        cdef int number
        attempt.epoch = self.epoch
        attempt.offset = get_i64(message.at + R_QUEUE_OFFSET)
        attempt.number = message.inner_number
        attempt.first = attempt_of(message.at)
        number = self._change(begin_section, &attempt, "begin a message")
        if number:
            message.delivery_attempt = number
        return number > 0

    cdef bint _end_lease_at(self, int64_t lease_until) except -1:
        """Move the end of the lease; 0 gives the queue back. False when the epoch is old."""
        cdef Lease lease
        lease.epoch = self.epoch
        lease.until = lease_until
        return self._change(lease_section, &lease, "change the lease") == 1

    cdef bint _hold_behind(self, uint64_t offset, bytearray rest) except -1:
        """Note how far a batch is finished, unless another batch of the queue is noted. False when the epoch is old."""
        cdef uint64_t held = load64(self.slot + G_HELD_OFFSET)
        cdef Holding holding
        if held != 0 and held != offset + 1:
            return self.is_valid()
        holding.epoch = self.epoch
        holding.offset = offset
        holding.rest = <const unsigned char *>PyByteArray_AS_STRING(rest) + 4
        holding.count = len(rest) - 4
        return self._change(hold_section, &holding, "finish a message of a batch") == 1

    cdef bint _acknowledge_offsets(self, list offsets, int why) except -1:
        cdef Py_ssize_t count = len(offsets)
        cdef Py_ssize_t number
        cdef uint64_t *values = <uint64_t *>malloc(max(1, count) * sizeof(uint64_t))
        if values == NULL:
            raise MemoryError()
        try:
            for number in range(count):
                values[number] = offsets[number]
            return self._acknowledge(values, count, why)
        finally:
            free(values)

    cdef bint _acknowledge(self, const uint64_t *offsets, Py_ssize_t count, int why) except -1:
        cdef Marking marking
        cdef int outcome
        marking.epoch = self.epoch
        marking.offsets = offsets
        marking.count = count
        marking.why = why
        outcome = self._change(acknowledge_section, &marking, "acknowledge")
        if outcome == 2:
            raise ValueError(f"acknowledged {offsets[0]} of {self.queue}, beyond {ACK_WINDOW} above the committed offset")
        reach_point(AT_ACK_FINISHED)
        return outcome == 1

    cdef bint _expire(self, uint64_t low, uint64_t start) except -1:
        """Count everything below ``low`` as finished. False when the epoch is old."""
        cdef Expiry expiry
        cdef int outcome
        expiry.epoch = self.epoch
        expiry.low = low
        expiry.start = start
        expiry.count = 0
        expiry.why = COUNT_LOST if self.reader.compacted is None else COUNT_SKIPPED
        outcome = self._change(expire_section, &expiry, "step over removed messages")
        if self.reader.compacted is None:
            self.expired += expiry.count
        else:
            self.skipped += expiry.count  # a later message of the same key stands for each of them
        return outcome == 1

    cdef inline int _change(self, SlotSection section, void *what, str doing) except -1:
        """Run a section under the mutex of the group-queue; return its outcome. Raises StoreBusy."""
        cdef int outcome = 0
        cdef int failure
        cdef Lending lending
        if self.lending.running != NULL:
            lending = self.lending
            lending.section = section
            lending.what = <uint64_t *>what
            section = lent_section
            what = &lending
        failure = under_mutex(self.slot, self.shared.me, section, what, self.timeout_ns, &outcome)
        if failure:
            self._raise_lock_failure(failure, doing)
        return outcome

    cdef int _raise_lock_failure(self, int failure, str doing) except -1:
        if failure == ETIMEDOUT:
            raise StoreBusy(
                f"waited {self.timeout_ns // 1000000} ms to {doing} in {self.queue}, held by process "
                f"{mutex_process(self.slot + G_MUTEX)}")
        raise OSError(failure, os.strerror(failure))

    cdef bint _skip(self, uint64_t *offset, uint64_t span, uint64_t log_begin) except -1:
        """Finish the messages from ``offset`` on that the tags cannot match, and move it.

        False when the epoch is old.
        """
        cdef Skip skip
        cdef int failure
        cdef Mapping mapping = lent(self.reader.queue_file, 0)
        cdef uint64_t first
        if mapping is None:
            return True
        first = self.reader.queue_file[1]
        skip.shared = self.shared.address
        skip.slot = self.slot
        skip.me = self.shared.me
        skip.epoch = self.epoch
        skip.entry = mapping.address + (offset[0] - first) * CONSUME_QUEUE_ENTRY_SIZE
        skip.codes = self.reader.tags.codes
        skip.code_count = self.reader.tags.count
        skip.log_begin = log_begin
        skip.offset = offset[0]
        skip.end = min(load64(self.queue_slot + Q_MAX_OFFSET), first + self.reader.entries_per_file)
        skip.span = span
        failure = skip_unwanted(&skip, BRIEFLY, 0)
        if failure == EBUSY or failure == 0 and skip.offset - offset[0] >= skip.span:
            with nogil:
                failure = skip_unwanted(&skip, AT_LENGTH, self.timeout_ns)
        touch(mapping, (offset[0] - first) * CONSUME_QUEUE_ENTRY_SIZE, (skip.offset - offset[0]) * CONSUME_QUEUE_ENTRY_SIZE)
        self.skipped += skip.offset - offset[0]
        offset[0] = skip.offset
        if failure and failure != ESTALE:
            self._raise_lock_failure(failure, "skip messages")
        return failure == 0
