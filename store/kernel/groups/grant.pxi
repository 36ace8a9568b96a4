# --- the grant: taking and acknowledging the messages of one queue ------------------------------------------------------

cdef struct Entry:
    int64_t commit_log_offset
    int32_t size
    int64_t tags_code


@cython.final
cdef class QueueGrant:
    """One message queue, granted to one consumer of a group under one epoch.

    ``files`` gives ``log_file(commit_log_offset) -> (Mapping, base)`` and ``queue_file(slot, queue_offset) ->
    (Mapping, first entry)``, both None for what retention has removed, and ``oldest(slot)``, the queue offset of the
    oldest message that is there. One thread at a time takes; any thread acknowledges.
    """

    cdef Mapping shared
    cdef unsigned char *slot            # group-queue
    cdef unsigned char *queue_slot
    cdef object files
    cdef readonly object queue
    cdef readonly int queue_slot_number
    cdef readonly int group_queue       # number of the slot in the group-queue table
    cdef readonly uint64_t epoch
    cdef readonly uint64_t next_offset
    cdef TagSet tags
    cdef tuple queue_file               # borrowed
    cdef tuple log_file                 # borrowed
    cdef uint64_t entries_per_file
    cdef uint64_t log_file_bytes
    cdef int64_t timeout_ns
    cdef int64_t max_opened_body_bytes
    cdef object compacted               # of a compact topic: what gives messages below where the log begins, or None
    cdef uint64_t log_low               # where the log begins in this queue, as far as is known
    cdef uint64_t ahead_offset          # below it, from next_offset on, there is nothing in the compacted file
    cdef ReceivedMessage ahead          # the message with this offset, or None
    cdef readonly bint has_unopened     # a batch was met that cannot be opened
    cdef readonly list damaged          # (queue_offset, commit_log_offset, outcome), for the caller to report and clear
    cdef readonly uint64_t skipped      # messages that were finished because they are not wanted
    cdef public uint64_t expired        # messages removed before they were taken, for the caller to report and clear

    def __init__(self, Mapping shared not None, Py_ssize_t group_queue_at, Py_ssize_t queue_at, int queue_slot_number,
                 object queue, uint64_t epoch, object files, TagSet tags not None, *, int group_queue,
                 uint64_t log_file_bytes, uint64_t entries_per_file, int64_t timeout_ms, int64_t max_opened_body_bytes, object compacted=None):
        self.shared = shared
        self.slot = shared.address + group_queue_at
        self.queue_slot = shared.address + queue_at
        self.queue_slot_number = queue_slot_number
        self.group_queue = group_queue
        self.queue = queue
        self.epoch = epoch
        self.files = files
        self.tags = tags
        self.log_file_bytes = log_file_bytes
        self.entries_per_file = entries_per_file
        self.timeout_ns = timeout_ms * 1000000
        self.max_opened_body_bytes = max_opened_body_bytes
        self.compacted = compacted
        self.damaged = []
        self._acknowledge(NULL, 0)  # finishes what a dead owner left half done
        self.next_offset = load64(self.slot + G_COMMITTED)

    @property
    def committed_offset(self):
        return load64(self.slot + G_COMMITTED)

    @property
    def max_offset(self):
        return load64(self.queue_slot + Q_MAX_OFFSET)

    @property
    def has_more(self):
        return load64(self.queue_slot + Q_MAX_OFFSET) > self.next_offset

    @property
    def valid(self):
        return load64(self.slot + G_EPOCH) == self.epoch

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
        """Ask to be woken on ``lane``. True when a message is there already, so that the caller must not sleep."""
        or64(self.queue_slot + Q_WAITING_LANES, <uint64_t>1 << lane)
        return load64_seq(self.queue_slot + Q_MAX_OFFSET) > self.next_offset

    def take(self, Py_ssize_t limit, uint64_t span):
        """Return up to ``limit`` messages from ``next_offset`` on, none at ``committed_offset + span`` or above."""
        cdef uint64_t end = load64(self.queue_slot + Q_MAX_OFFSET)
        cdef uint64_t offset = self.next_offset
        cdef uint64_t low = load64(self.queue_slot + Q_MIN_OFFSET)
        cdef int64_t log_begin = load64(self.shared.address + H_MIN_OFFSET)
        cdef uint64_t last
        cdef list unwanted = None
        cdef list messages = []
        cdef object message
        cdef Entry entry
        cdef uint64_t most = offset + (MOST_LOOKED_AT if self.tags.passes is None else MOST_ASKED_ABOUT)
        if load64(self.slot + G_EPOCH) != self.epoch:
            return messages
        if self.tags.count or self.tags.passes is not None or self.compacted is not None:
            span = min(span, <uint64_t>ACK_WINDOW)  # what is not wanted is finished by its bit
        if load64(self.slot + G_COMMITTED) < low:
            if not self._expire(low, offset):
                return messages
            offset = max(offset, low)
        last = load64(self.slot + G_COMMITTED) + span
        if end > last:
            end = last
        while offset < end and len(messages) < limit and offset < most:
            # A bit is cleared when the committed offset is about to pass it, which advance_to has said before.
            if is_acknowledged(self.slot, offset) or offset < load64(self.slot + G_ADVANCE_TO):
                offset += 1
                continue
            message = None
            if self.compacted is not None and offset < self.log_low:
                message = self._compacted(offset)
            elif not self._read_entry(offset, &entry) or 0 <= entry.commit_log_offset < log_begin:
                message = _GONE
            elif self.tags.may_match(entry.tags_code):
                message = self._message(offset, entry.commit_log_offset, entry.size)
            elif self._skip(&offset, span, log_begin):
                log_begin = load64(self.shared.address + H_MIN_OFFSET)
                end = min(load64(self.queue_slot + Q_MAX_OFFSET), load64(self.slot + G_COMMITTED) + span)
                continue
            else:
                return messages
            if message is _GONE:
                low = self.files.oldest(self.queue_slot_number)
                if low > offset or self._is_in_compacted(offset):
                    if low > offset and not self._expire(low, offset):
                        return messages
                    offset = max(low, offset)
                    log_begin = load64(self.shared.address + H_MIN_OFFSET)
                    end = min(load64(self.queue_slot + Q_MAX_OFFSET), load64(self.slot + G_COMMITTED) + span)
                    continue
                self.damaged.append((offset, entry.commit_log_offset, BAD_OFFSET))  # an entry between good ones is damaged
                message = None
            if type(message) is list:
                messages += <list>message
            elif message is not None:
                messages.append(message)
            else:
                if unwanted is None:
                    unwanted = []
                self.skipped += 1
                unwanted.append(offset)
                if len(unwanted) == 1024:
                    self.next_offset = offset + 1
                    if not self._acknowledge_offsets(unwanted):
                        return messages
                    unwanted = None
                    last = load64(self.slot + G_COMMITTED) + span
                    end = min(load64(self.queue_slot + Q_MAX_OFFSET), last)
            offset += 1
        self.next_offset = offset
        store64(self.slot + G_TAKEN_TO, offset)
        if unwanted is not None:
            self._acknowledge_offsets(unwanted)
        return messages

    def acknowledge(self, ReceivedMessage message not None):
        """Mark one message finished. False when the epoch is old: somebody else has the queue now."""
        cdef uint64_t offset = get_i64(message.at + R_QUEUE_OFFSET)
        message.opened = None  # who took it with others holds it until all of them are finished
        if message.rest is not None and finish_inner(message):
            return self._hold_behind(offset, message.rest)
        return self._acknowledge(&offset, 1)

    def finish(self, list messages not None):
        """Mark messages finished that come from batches; return the queue offsets that are to be acknowledged now."""
        cdef ReceivedMessage message = None
        cdef list offsets = []
        for message in messages:
            if message.rest is None or finish_inner(message) == 0:
                offsets.append(get_i64(message.at + R_QUEUE_OFFSET))
        if message is not None and message.rest is not None and get_i32(<unsigned char *>PyByteArray_AS_STRING(message.rest)):
            self._hold_behind(get_i64(message.at + R_QUEUE_OFFSET), message.rest)
        return offsets

    def acknowledge_offsets(self, list offsets not None):
        """Mark messages finished by their queue offsets, under one lock. False when the epoch is old."""
        return self._acknowledge_offsets(offsets)

    def begin(self, ReceivedMessage message not None):
        """Count a delivery attempt before the handler runs, and give its number to the message. False when the epoch is old.

        For the one message that an ordered queue stands at: the count survives this process.
        """
        cdef uint64_t offset = get_i64(message.at + R_QUEUE_OFFSET)
        cdef uint64_t number = message.inner_number
        cdef int first = attempt_of(message.at)
        cdef int failure = mutex_try(self.slot + G_MUTEX, 30)
        cdef int attempt = 0
        if failure == EBUSY:
            with nogil:
                failure = mutex_wait(self.slot + G_MUTEX, self.timeout_ns)
                if failure == 0:
                    attempt = begin_section(self.slot, self.epoch, offset, number, first)
                    mutex_release(self.slot + G_MUTEX)
        elif failure == 0:
            attempt = begin_section(self.slot, self.epoch, offset, number, first)
            mutex_release(self.slot + G_MUTEX)
        if failure:
            self._raise_lock_failure(failure, "begin a message")
        if attempt:
            message.delivery_attempt = attempt
        return attempt > 0

    cdef bint _end_lease_at(self, int64_t lease_until) except -1:
        """Move the end of the lease; 0 gives the queue back. False when the epoch is old."""
        cdef int outcome = 0
        cdef int failure
        with nogil:
            failure = mutex_wait(self.slot + G_MUTEX, self.timeout_ns)
            if failure == 0:
                outcome = lease_section(self.slot, self.epoch, lease_until)
                mutex_release(self.slot + G_MUTEX)
        if failure:
            self._raise_lock_failure(failure, "change the lease")
        return outcome == 1

    cdef bint _hold_behind(self, uint64_t offset, bytearray rest) except -1:
        """Note how far a batch is finished, if no other one of the queue is noted. False when the epoch is old."""
        cdef const unsigned char *at = <const unsigned char *>PyByteArray_AS_STRING(rest) + 4
        cdef uint64_t count = len(rest) - 4
        cdef uint64_t held = load64(self.slot + G_HELD_OFFSET)
        cdef int failure
        cdef int outcome = 0
        if held != 0 and held != offset + 1:
            return load64(self.slot + G_EPOCH) == self.epoch
        failure = mutex_try(self.slot + G_MUTEX, 30)
        if failure == EBUSY:
            with nogil:
                failure = mutex_wait(self.slot + G_MUTEX, self.timeout_ns)
                if failure == 0:
                    outcome = hold_section(self.slot, self.epoch, offset, at, count)
                    mutex_release(self.slot + G_MUTEX)
        elif failure == 0:
            outcome = hold_section(self.slot, self.epoch, offset, at, count)
            mutex_release(self.slot + G_MUTEX)
        if failure:
            self._raise_lock_failure(failure, "finish a message of a batch")
        return outcome == 1

    cdef bint _acknowledge_offsets(self, list offsets) except -1:
        cdef Py_ssize_t count = len(offsets)
        cdef Py_ssize_t number
        cdef uint64_t *values = <uint64_t *>malloc(max(1, count) * sizeof(uint64_t))
        if values == NULL:
            raise MemoryError()
        try:
            for number in range(count):
                values[number] = offsets[number]
            return self._acknowledge(values, count)
        finally:
            free(values)

    cdef bint _acknowledge(self, const uint64_t *offsets, Py_ssize_t count) except -1:
        cdef int failure = mutex_try(self.slot + G_MUTEX, 30)
        cdef int outcome = 0
        if failure == EBUSY:
            failure, outcome = self._acknowledge_slowly(offsets, count)
        elif failure == 0:
            outcome = acknowledge_section(self.slot, self.epoch, offsets, count)
            mutex_release(self.slot + G_MUTEX)
        if failure:
            self._raise_lock_failure(failure, "acknowledge")
        if outcome == 2:
            raise ValueError(f"acknowledged {offsets[0]} of {self.queue}, beyond {ACK_WINDOW} above the committed offset")
        reach_point(AT_ACK_FINISHED)
        return outcome == 1

    cdef bint _expire(self, uint64_t low, uint64_t start) except -1:
        """Count everything below ``low`` as finished. False when the epoch is old."""
        cdef bint is_log = self.compacted is None  # of a compact topic those had later ones of their keys
        cdef int failure
        cdef int outcome = 0
        with nogil:
            failure = mutex_wait(self.slot + G_MUTEX, self.timeout_ns)
            if failure == 0:
                outcome = expire_section(
                    self.slot, self.epoch, low, start, &self.expired if is_log else &self.skipped)
                mutex_release(self.slot + G_MUTEX)
        if failure:
            self._raise_lock_failure(failure, "step over removed messages")
        return outcome == 1

    cdef int _raise_lock_failure(self, int failure, str doing) except -1:
        if failure == ETIMEDOUT:
            raise StoreBusy(
                f"waited {self.timeout_ns // 1000000} ms to {doing} in {self.queue}, held by thread "
                f"{mutex_owner(self.slot + G_MUTEX)}")
        raise OSError(failure, os.strerror(failure))

    cdef bint _skip(self, uint64_t *offset, uint64_t span, uint64_t log_begin) except -1:
        """Finish the messages from ``offset`` on that the tags cannot match, and move it. False when the epoch is old."""
        cdef Skip skip
        cdef int failure
        cdef Mapping mapping = lent(self.queue_file, 0)
        cdef uint64_t first
        if mapping is None:
            return True
        first = self.queue_file[1]
        skip.shared = self.shared.address
        skip.slot = self.slot
        skip.epoch = self.epoch
        skip.entry = mapping.address + (offset[0] - first) * ENTRY_SIZE
        skip.codes = self.tags.codes
        skip.code_count = self.tags.count
        skip.log_begin = log_begin
        skip.offset = offset[0]
        skip.end = min(load64(self.queue_slot + Q_MAX_OFFSET), first + self.entries_per_file)
        skip.span = span
        failure = skip_unwanted(&skip, BRIEFLY, 0)
        if failure == EBUSY or failure == 0 and skip.offset - offset[0] >= skip.span:
            with nogil:
                failure = skip_unwanted(&skip, AT_LENGTH, self.timeout_ns)
        self.skipped += skip.offset - offset[0]
        offset[0] = skip.offset
        if failure == ETIMEDOUT:
            raise StoreBusy(
                f"waited {self.timeout_ns // 1000000} ms to skip messages of {self.queue}, held by thread "
                f"{mutex_owner(self.slot + G_MUTEX)}")
        if failure and failure != ESTALE:
            raise OSError(failure, os.strerror(failure))
        return failure == 0

    cdef (int, int) _acknowledge_slowly(self, const uint64_t *offsets, Py_ssize_t count):
        cdef int failure
        cdef int outcome = 0
        with nogil:
            failure = mutex_wait(self.slot + G_MUTEX, self.timeout_ns)
            if failure == 0:
                outcome = acknowledge_section(self.slot, self.epoch, offsets, count)
                mutex_release(self.slot + G_MUTEX)
        return failure, outcome

    cdef int _read_entry(self, uint64_t offset, Entry *entry) except -1:
        """0 for an entry whose file was removed."""
        cdef Mapping mapping = lent(self.queue_file, 0)
        cdef tuple provided
        cdef const unsigned char *at
        if mapping is None or not self.queue_file[1] <= offset < <uint64_t>self.queue_file[1] + self.entries_per_file:
            provided = self.files.queue_file(self.queue_slot_number, offset)
            if provided is None:
                entry.commit_log_offset = -1
                return 0
            self.queue_file = borrowed(provided)
            mapping = provided[0]
        at = mapping.address + (offset - <uint64_t>self.queue_file[1]) * ENTRY_SIZE
        entry.commit_log_offset = get_i64(at)
        entry.size = get_i32(at + E_SIZE)
        entry.tags_code = get_i64(at + E_TAGS_CODE)
        return 1

    cdef bint _is_in_compacted(self, uint64_t offset) except -1:
        """Look into the compacted file, if there is one. True when the log does not reach back to ``offset``."""
        if self.compacted is None:
            return False
        self.ahead_offset, self.ahead, self.log_low = self.compacted(offset)
        return offset < self.log_low

    cdef ReceivedMessage _compacted(self, uint64_t offset):
        """The message with an offset below the log's begin; None when there is none, or it is not wanted."""
        cdef ReceivedMessage message
        if offset > self.ahead_offset or offset == self.ahead_offset and self.ahead is None:
            self.ahead_offset, self.ahead, self.log_low = self.compacted(offset)
        if offset != self.ahead_offset or self.ahead is None:
            return None
        message, self.ahead = self.ahead, None
        if not self.tags.matches(message.at, &message.frame):
            return None
        return message if self.tags.passes is None or self.tags.passes(message) else None

    cdef object _message(self, uint64_t offset, int64_t commit_log_offset, int32_t size):
        """The record of an entry, checked against it; None when it is damaged or not wanted after all, or ``_GONE``."""
        cdef ReceivedMessage message
        cdef Frame frame
        cdef bytes record = None
        cdef const unsigned char *at = NULL
        cdef int found = BAD_SIZE
        cdef uint64_t base
        cdef Mapping mapping
        cdef tuple provided
        if (size < RECORD_FIXED_SIZE or commit_log_offset < 0
                or commit_log_offset > <int64_t>load64(self.shared.address + H_PUBLISHED_TO) - size):
            self.damaged.append((offset, commit_log_offset, BAD_OFFSET))  # the entry: there is no such record
            return None
        mapping = lent(self.log_file, 0)
        if mapping is None or not self.log_file[1] <= commit_log_offset < <int64_t>self.log_file[1] + <int64_t>self.log_file_bytes:
            try:
                provided = self.files.log_file(commit_log_offset)
            except FileNotFoundError:
                self.damaged.append((offset, commit_log_offset, IS_END))
                return None
            if provided is None:
                return _GONE
            self.log_file = borrowed(provided)
            mapping = provided[0]
        base = self.log_file[1]
        if size <= <int64_t>(base + self.log_file_bytes) - commit_log_offset:
            at = mapping.address + (commit_log_offset - base)
            record = PyBytes_FromStringAndSize(<const char *>at, size)
            at = <const unsigned char *>PyBytes_AS_STRING(record)
            found = parse(at, size, commit_log_offset, &frame)
            if found == IS_RECORD and (frame.size != size or get_i64(at + R_QUEUE_OFFSET) != <int64_t>offset
                                       or get_i32(at + R_QUEUE_ID) != get_queue_id(self.queue_slot)
                                       or not has_topic(self.queue_slot, at, &frame)):
                found = BAD_OFFSET
        if found != IS_RECORD:
            if commit_log_offset < <int64_t>load64(self.shared.address + H_MIN_OFFSET):
                return _GONE
            self.damaged.append((offset, commit_log_offset, found))
            return None
        if not self.tags.matches(at, &frame):
            return None
        message = received(record, 0, &frame, self.queue, attempt_of(at), True)
        message.max_opened_body_bytes = self.max_opened_body_bytes
        if is_inner_batch(at):
            return self._unwrapped(message, offset)
        return message if self.tags.passes is None or self.tags.passes(message) else None

    cdef object _unwrapped(self, ReceivedMessage batch, uint64_t offset):
        """The messages of a batch that are wanted and not finished, None without any; itself when it cannot be opened."""
        cdef ReceivedMessage message
        cdef list messages
        cdef list wanted = []
        cdef uint64_t begin = held_number(self.slot, offset)
        try:
            messages = inner_messages(batch)
        except QueueError as error:
            batch.unopened = error.with_traceback(None)
            self.has_unopened = True
            return batch
        for message in messages:
            if (<uint64_t>message.inner_number >= begin and self.tags.matches(message.at, &message.frame)
                    and (self.tags.passes is None or self.tags.passes(message))):
                wanted.append(message)
            else:
                finish_inner(message)
        return wanted or None


cdef int32_t get_queue_id(const unsigned char *slot) noexcept nogil:
    return <int32_t>load32(slot)


cdef bint has_topic(const unsigned char *slot, const unsigned char *record, Frame *frame) noexcept nogil:
    return (<Py_ssize_t>load32(slot + Q_TOPIC_SIZE) == frame.topic_size
            and memcmp(slot + Q_TOPIC, record + frame.topic_at, frame.topic_size) == 0)
