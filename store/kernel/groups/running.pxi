# --- running: what each handler thread runs, for the time when the handler has killed its process ---------------------

cdef enum:
    # running slot
    U_MEMBER = 0
    U_INCARNATION = 8
    U_QUEUE_OFFSET = 16
    U_LAST_OFFSET = 24
    U_ATTEMPT = 32
    U_GROUP_QUEUE = 40
    U_PID = 44
    RUNNING_SIZE = 64

LAYOUT.update({
    "running.member": U_MEMBER, "running.incarnation": U_INCARNATION, "running.queue_offset": U_QUEUE_OFFSET,
    "running.last_offset": U_LAST_OFFSET, "running.attempt": U_ATTEMPT, "running.group_queue": U_GROUP_QUEUE,
    "running.pid": U_PID, "running.size_of": RUNNING_SIZE,
})


@cython.final
cdef class Running:
    """The running slot of one handler thread. Others read it only after a death, so plain stores are enough.

    ``attempt`` is cleared first and written last: wherever a death comes, the slot names a message with its own attempt, or
    no message. It counts how often this record was begun. Messages that ran side by side were all begun for the first
    time, even if their delivery attempts differ.
    """

    cdef Mapping shared
    cdef unsigned char *slot
    cdef uint64_t member
    cdef uint64_t incarnation

    def __init__(self, Mapping shared not None, Py_ssize_t at):
        if at < 0 or at % 8 or at > shared.size - RUNNING_SIZE:
            raise ValueError(f"byte {at} cannot be that of a running slot in {shared.size}")
        self.shared = shared
        self.slot = shared.address + at
        self.member = load64(self.slot + U_MEMBER)
        self.incarnation = load64(self.slot + U_INCARNATION)

    def serve(self, uint32_t group_queue):
        store64(self.slot + U_ATTEMPT, 0)
        store32(self.slot + U_GROUP_QUEUE, group_queue)

    def begin(self, ReceivedMessage message not None):
        cdef uint64_t offset = get_i64(message.at + R_QUEUE_OFFSET)
        store64(self.slot + U_ATTEMPT, 0)
        store64(self.slot + U_QUEUE_OFFSET, offset)
        store64(self.slot + U_LAST_OFFSET, offset)
        store64(self.slot + U_ATTEMPT, message.delivery_attempt - attempt_of(message.at) + 1)

    def begin_batch(self, list messages not None):
        cdef ReceivedMessage first = messages[0]
        cdef ReceivedMessage last = messages[len(messages) - 1]
        store64(self.slot + U_ATTEMPT, 0)
        store64(self.slot + U_QUEUE_OFFSET, get_i64(first.at + R_QUEUE_OFFSET))
        store64(self.slot + U_LAST_OFFSET, get_i64(last.at + R_QUEUE_OFFSET))
        store64(self.slot + U_ATTEMPT, first.delivery_attempt - attempt_of(first.at) + 1)

    def rest(self):
        if load64(self.slot + U_MEMBER) == self.member and load64(self.slot + U_INCARNATION) == self.incarnation:
            store64(self.slot + U_ATTEMPT, 0)

    def release(self):
        if load64(self.slot + U_MEMBER) == self.member and load64(self.slot + U_INCARNATION) == self.incarnation:
            store64(self.slot + U_ATTEMPT, 0)
            store64(self.slot + U_MEMBER, 0)


def running_in(Mapping shared not None, Py_ssize_t table_at, Py_ssize_t count, uint32_t group_queue):
    cdef Py_ssize_t number
    cdef const unsigned char *slot
    cdef list found = []
    if table_at < 0 or count < 0 or table_at + count * RUNNING_SIZE > shared.size:
        raise ValueError(f"{count} running slots from byte {table_at} on are not inside {shared.size}")
    for number in range(count):
        slot = shared.address + table_at + number * RUNNING_SIZE
        if load64(slot + U_ATTEMPT) and load32(slot + U_GROUP_QUEUE) == group_queue and load64(slot + U_MEMBER):
            found.append(number)
    return found
