# --- the queue reader: the messages of one queue that a group wants ---------------------------------------------------

cdef struct Entry:
    int64_t commit_log_offset
    int32_t size
    int64_t tags_code


_GONE = object()
"""Stands for a message that retention has removed."""


@cython.final
cdef class _QueueReader:
    """Reads messages of one queue by their queue offsets, and leaves out those that the tags do not want.

    ``files`` gives ``log_file(commit_log_offset) -> (Mapping, base)`` and ``queue_file(slot, queue_offset) -> (Mapping,
    first entry)``, both None for a file that retention has removed, and ``oldest(slot)``, the queue offset of the oldest
    message that is there.
    """

    cdef Mapping shared
    cdef unsigned char *slot            # group-queue
    cdef unsigned char *queue_slot
    cdef int queue_slot_number
    cdef object files
    cdef object queue
    cdef TagSet tags
    cdef tuple queue_file               # borrowed
    cdef tuple log_file                 # borrowed
    cdef uint64_t entries_per_file
    cdef uint64_t log_file_bytes
    cdef int64_t max_opened_body_bytes
    cdef object compacted               # of a compact topic: gives messages below the begin of the log; else None
    cdef uint64_t log_low               # where the log begins in this queue, as far as is known
    cdef uint64_t ahead_offset          # the compacted file has nothing between the last offset asked for and this one
    cdef ReceivedMessage ahead          # the message with this offset, or None
    cdef bint has_unopened              # a batch was met that cannot be opened
    cdef list damaged                   # (queue_offset, commit_log_offset, outcome), for the grant's user to report and clear

    cdef int read_entry(self, uint64_t offset, Entry *entry) except -1:
        """Read the entry of a message. 0 when retention has removed its file."""
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
        touch(mapping, (offset - <uint64_t>self.queue_file[1]) * CONSUME_QUEUE_ENTRY_SIZE, CONSUME_QUEUE_ENTRY_SIZE)
        at = mapping.address + (offset - <uint64_t>self.queue_file[1]) * CONSUME_QUEUE_ENTRY_SIZE
        entry.commit_log_offset = get_i64(at)
        entry.size = get_i32(at + E_SIZE)
        entry.tags_code = get_i64(at + E_TAGS_CODE)
        return 1

    cdef uint64_t oldest(self) except? 0:
        return self.files.oldest(self.queue_slot_number)

    cdef bint is_in_compacted(self, uint64_t offset) except -1:
        """Look into the compacted file, if there is one. True when the log does not reach back to ``offset``."""
        if self.compacted is None:
            return False
        self.ahead_offset, self.ahead, self.log_low = self.compacted(offset)
        return offset < self.log_low

    cdef ReceivedMessage compacted_message(self, uint64_t offset):
        """The message with an offset below the begin of the log; None when it is not there, or not wanted."""
        cdef ReceivedMessage message
        if offset > self.ahead_offset or offset == self.ahead_offset and self.ahead is None:
            self.ahead_offset, self.ahead, self.log_low = self.compacted(offset)
        if offset != self.ahead_offset or self.ahead is None:
            return None
        message, self.ahead = self.ahead, None
        return message if self.is_wanted(message) else None

    cdef bint is_wanted(self, ReceivedMessage message) except -1:
        if not self.tags.matches(message.at, &message.frame):
            return False
        return self.tags.passes is None or bool(self.tags.passes(message))

    cdef object message(self, uint64_t offset, const Entry *entry):
        """The message of an entry, or a list of the messages of a batch.

        None: it is damaged, or not wanted after all. ``_GONE``: retention has removed it.
        """
        cdef Frame frame
        cdef bytes record
        cdef int found = FOUND_SHORT
        cdef const unsigned char *at
        cdef Mapping mapping
        if (entry.size < RECORD_FIXED_SIZE or entry.commit_log_offset < 0
                or entry.commit_log_offset > <int64_t>load64(self.shared.address + H_PUBLISHED_TO) - entry.size):
            return self.damage(offset, entry, FOUND_BAD_OFFSET)  # the entry: there is no such record
        try:
            mapping = self.log_of(entry.commit_log_offset)
        except FileNotFoundError:
            return self.damage(offset, entry, FOUND_END)
        if mapping is None:
            return _GONE
        record = self.record_of(mapping, entry)
        at = <const unsigned char *>PyBytes_AS_STRING(record)
        found = parse(at, entry.size, entry.commit_log_offset, &frame) if PyBytes_GET_SIZE(record) else FOUND_BAD_SIZE
        if found == FOUND_RECORD and not self.is_of_entry(at, &frame, offset, entry):
            found = FOUND_BAD_OFFSET
        if found != FOUND_RECORD:
            if entry.commit_log_offset < <int64_t>load64(self.shared.address + H_MIN_OFFSET):
                return _GONE
            return self.damage(offset, entry, found)
        return self.delivered(record, &frame, offset)

    cdef Mapping log_of(self, int64_t commit_log_offset):
        """The commit log file of an offset.

        None when retention has removed it. Raises FileNotFoundError when it is lost.
        """
        cdef Mapping mapping = lent(self.log_file, 0)
        cdef tuple provided
        if mapping is None or not (
                self.log_file[1] <= commit_log_offset < <int64_t>self.log_file[1] + <int64_t>self.log_file_bytes):
            provided = self.files.log_file(commit_log_offset)
            if provided is None:
                return None
            self.log_file = borrowed(provided)
            mapping = provided[0]
        return mapping

    cdef bytes record_of(self, Mapping mapping, const Entry *entry):
        """A copy of the bytes that an entry says are its record; empty when they reach beyond the file."""
        cdef uint64_t at = entry.commit_log_offset - <uint64_t>self.log_file[1]
        if <uint64_t>entry.size > self.log_file_bytes - at:
            return b""
        touch(mapping, at, entry.size)
        return PyBytes_FromStringAndSize(<const char *>mapping.address + at, entry.size)

    cdef bint is_of_entry(self, const unsigned char *at, Frame *frame, uint64_t offset, const Entry *entry) noexcept nogil:
        """Whether a valid record is the one that its entry stands for."""
        return (frame.size == entry.size and get_i64(at + R_QUEUE_OFFSET) == <int64_t>offset
                and get_i32(at + R_QUEUE_ID) == <int32_t>load32(self.queue_slot)
                and has_topic(self.queue_slot, at, frame))

    cdef object damage(self, uint64_t offset, const Entry *entry, int found):
        """Note damage; return None, as for a message that is not wanted."""
        self.damaged.append((offset, entry.commit_log_offset, found))
        return None

    cdef object delivered(self, bytes record, Frame *frame, uint64_t offset):
        """The message of a checked record, or a list of the messages of a batch; None when it is not wanted."""
        cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(record)
        cdef ReceivedMessage message
        if not self.tags.matches(at, frame):
            return None
        message = received(record, 0, frame, self.queue, attempt_of(at), True)
        message.max_opened_body_bytes = self.max_opened_body_bytes
        if is_inner_batch(at):
            return self.unwrapped(message, offset)
        return message if self.tags.passes is None or self.tags.passes(message) else None

    cdef object unwrapped(self, ReceivedMessage batch, uint64_t offset):
        """The messages of a batch that are wanted and unfinished, or None.

        The batch itself when it cannot be opened.
        """
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
            if <uint64_t>message.inner_number >= begin and self.is_wanted(message):
                wanted.append(message)
            else:
                finish_inner(message)
        return wanted or None


cdef bint has_topic(const unsigned char *slot, const unsigned char *record, const Frame *frame) noexcept nogil:
    return (<Py_ssize_t>load32(slot + Q_TOPIC_SIZE) == frame.topic_size
            and memcmp(slot + Q_TOPIC, record + frame.topic_at, frame.topic_size) == 0)
