# --- running: what each handler thread runs and how long, also for the time when the handler has killed its process ---

cdef enum:
    BOUNDS = HISTOGRAM_WORDS - 2
    GRANT_QUEUE_AT = 48         # the bit of a running slot's ``grant`` from which on it names the group-queue

cdef uint64_t BOUNDS_NS[BOUNDS]

for _number, _bound_ms in enumerate(_HANDLING_BOUNDS_MS):
    BOUNDS_NS[_number] = int(_bound_ms * 1000000)


cdef struct Histogram:
    uint64_t words[HISTOGRAM_WORDS]     # a count for each class, then the sum in ns


cdef inline void observe(Histogram *histogram, int64_t ns, uint64_t times) noexcept nogil:
    """Add what was measured so many times; a clock that was set back measures 0."""
    cdef uint64_t value = max(ns, <int64_t>0)
    cdef int number = 0
    while number < BOUNDS and value > BOUNDS_NS[number]:
        number += 1
    histogram.words[number] += times
    histogram.words[HISTOGRAM_WORDS - 1] += value * times


cdef void add_histogram(unsigned char *at, Histogram *histogram) noexcept nogil:
    """Add a histogram to a shared one, and empty it."""
    cdef int number
    for number in range(HISTOGRAM_WORDS):
        if histogram.words[number]:
            add64(at + number * 8, histogram.words[number])
            histogram.words[number] = 0


cdef inline uint64_t grant_word(uint32_t group_queue, uint64_t epoch) noexcept nogil:
    """One grant of one queue, in one word: a slot changes hands by one compare and swap."""
    return <uint64_t>group_queue << GRANT_QUEUE_AT | epoch & ((<uint64_t>1 << GRANT_QUEUE_AT) - 1)


@cython.final
cdef class CallContext:
    """The context variables of the calls of one thread.

    The library's own work between two calls runs in the context of the first one. This costs less than
    ``copy_context().run(call)``: the interpreter inlines a call from Python to Python.
    """

    cdef object entered     # the context of the present call, or of the last one; None outside of calls

    cdef inline int enter(self) except -1:
        """Leave the context of the last call, and enter a new copy of the thread's."""
        self.exit()
        cdef object context = PyContext_CopyCurrent()
        PyContext_Enter(context)
        self.entered = context
        return 0

    cdef inline void exit(self):
        cdef object context = self.entered
        self.entered = None
        if context is not None and PyContext_Exit(context) < 0:
            PyErr_Clear()  # it is not the present one: another call of this thread, inside or over this one, leaves its own

    def renew(self):
        self.enter()

    def leave(self):
        self.exit()


@cython.final
cdef class Running:
    """The running slot of one handler thread. Others rely on it only after a death, so plain stores are enough; but the
    grant, which others change under the mutex of the group-queue, by compare and swap.

    ``attempt`` is cleared first and written last: wherever a death comes, the slot names a message with its own attempt, or
    no message. It counts how often this record was begun. Messages that ran side by side were all begun for the first
    time, even if their delivery attempts differ.

    Times are counted in the memory of the process and added to the handler's shared slot by ``add_up``: a call costs one
    look at the clock, which ends the call before it, too.
    """

    cdef Mapping shared
    cdef unsigned char *slot
    cdef unsigned char *handling        # NULL when nobody keeps the times
    cdef uint64_t member
    cdef uint64_t incarnation
    cdef int64_t began                  # ns, of the present call; 0 when no handler runs
    cdef int64_t wall_ns                # what the wall clock is ahead of CLOCK_BOOTTIME
    cdef uint64_t calls                 # messages of the present call
    cdef uint64_t failures              # those of them that failed
    cdef Histogram handled_time
    cdef Histogram failed_time
    cdef Histogram waited_time
    cdef CallContext context

    def __init__(self, Mapping shared not None, Py_ssize_t at, Py_ssize_t handling_at=0):
        if at < 0 or at % 8 or at > shared.size - RUNNING_SLOT_SIZE:
            raise ValueError(f"byte {at} cannot be that of a running slot in {shared.size}")
        if handling_at < 0 or handling_at % 8 or handling_at > shared.size - HANDLING_SLOT_SIZE:
            raise ValueError(f"byte {handling_at} cannot be that of a handling slot in {shared.size}")
        self.shared = shared
        self.slot = shared.address + at
        self.handling = shared.address + handling_at if handling_at else NULL
        self.member = load64(self.slot + U_MEMBER)
        self.incarnation = load64(self.slot + U_INCARNATION)
        self.wall_ns = wall_clock_ms() * 1000000 - boottime_ns()
        self.context = CallContext()

    def serve(self, uint32_t group_queue, uint64_t epoch):
        store64(self.slot + U_ATTEMPT, 0)
        store64(self.slot + U_GRANT, grant_word(group_queue, epoch))
        store32(self.slot + U_GROUP_QUEUE, group_queue)

    def begin(self, ReceivedMessage message not None):
        self.context.enter()
        self.begin_message(message)

    def note(self, ReceivedMessage message not None):
        self.begin_message(message)

    cdef inline void begin_message(self, ReceivedMessage message):
        self.name(message, message)
        self.wait_is_over(message)
        store64(self.slot + U_ATTEMPT, message.delivery_attempt - attempt_of(message.at) + 1)

    def begin_batch(self, list messages not None):
        cdef ReceivedMessage first = messages[0]
        cdef ReceivedMessage message
        self.context.enter()
        self.name(first, messages[len(messages) - 1])
        for message in messages:
            self.wait_is_over(message)
        store64(self.slot + U_ATTEMPT, first.delivery_attempt - attempt_of(first.at) + 1)

    def show(self, list messages not None):
        cdef ReceivedMessage message
        self.context.enter()
        self.name(messages[0], messages[len(messages) - 1])
        for message in messages:
            self.wait_is_over(message)

    def fail(self, uint64_t messages):
        self.failures = messages
        self.end(boottime_ns())

    def forgive(self):
        if self.is_own():
            store64(self.slot + U_ATTEMPT, 0)

    def rest(self):
        self.context.exit()
        self.end(boottime_ns())
        if self.is_own():
            store64(self.slot + U_ATTEMPT, 0)
            store64(self.slot + U_BEGAN, 0)

    def release(self):
        self.rest()
        self.add_up()
        if self.is_own():
            store64(self.slot + U_MEMBER, 0)

    def add_up(self):
        self.wall_ns = wall_clock_ms() * 1000000 - boottime_ns()
        if self.handling != NULL:
            add_histogram(self.handling + W_HANDLED_TIME, &self.handled_time)
            add_histogram(self.handling + W_FAILED_TIME, &self.failed_time)
            add_histogram(self.handling + W_WAITED_TIME, &self.waited_time)

    cdef void name(self, ReceivedMessage first, ReceivedMessage last):
        """End the call before, and name the messages of the next one, without an attempt."""
        cdef int64_t now = boottime_ns()
        self.end(now)
        self.began = now
        store64(self.slot + U_ATTEMPT, 0)
        store64(self.slot + U_QUEUE_OFFSET, get_i64(first.at + R_QUEUE_OFFSET))
        store64(self.slot + U_LAST_OFFSET, get_i64(last.at + R_QUEUE_OFFSET))
        store64(self.slot + U_BEGAN, now)

    cdef inline void wait_is_over(self, ReceivedMessage message):
        self.calls += 1
        observe(&self.waited_time, self.began + self.wall_ns - store_timestamp_of(message.at) * 1000000, 1)

    cdef inline void end(self, int64_t now) noexcept:
        """Count the time of the call that has ended, once for each of its messages."""
        cdef uint64_t failures = min(self.failures, self.calls)
        if self.began:
            if failures:
                observe(&self.failed_time, now - self.began, failures)
            if self.calls > failures:
                observe(&self.handled_time, now - self.began, self.calls - failures)
        self.began = 0
        self.calls = self.failures = 0

    cdef inline bint is_own(self) noexcept:
        """Whether the slot is still that of this thread's member."""
        return load64(self.slot + U_MEMBER) == self.member and load64(self.slot + U_INCARNATION) == self.incarnation


def calls_in(Mapping shared not None, Py_ssize_t table_at, Py_ssize_t count, uint32_t group_queue):
    return slots_with(shared, table_at, count, group_queue, U_BEGAN)


def running_in(Mapping shared not None, Py_ssize_t table_at, Py_ssize_t count, uint32_t group_queue):
    return slots_with(shared, table_at, count, group_queue, U_ATTEMPT)


cdef list slots_with(Mapping shared, Py_ssize_t table_at, Py_ssize_t count, uint32_t group_queue, Py_ssize_t word):
    """The numbers of the slots of members that are at a group-queue, and whose word is not 0."""
    cdef Py_ssize_t number
    cdef const unsigned char *slot
    cdef list found = []
    if table_at < 0 or count < 0 or table_at + count * RUNNING_SLOT_SIZE > shared.size:
        raise ValueError(f"{count} running slots from byte {table_at} on are not inside {shared.size}")
    for number in range(count):
        slot = shared.address + table_at + number * RUNNING_SLOT_SIZE
        if load64(slot + word) and load32(slot + U_GROUP_QUEUE) == group_queue and load64(slot + U_MEMBER):
            found.append(number)
    return found
