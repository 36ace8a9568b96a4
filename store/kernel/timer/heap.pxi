# --- the heap of the timer: which message is due next -----------------------------------------------------------------

cdef struct Waiting:
    int64_t due_ms
    int64_t queue_offset


cdef inline bint is_before(const Waiting *one, const Waiting *other) noexcept nogil:
    return one.due_ms < other.due_ms or one.due_ms == other.due_ms and one.queue_offset < other.queue_offset


@cython.final
cdef class TimerHeap:
    """Due times and queue offsets of waiting messages, the next one first; 16 bytes each."""

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
        cdef Py_ssize_t count = PyBytes_GET_SIZE(entries) // CONSUME_QUEUE_ENTRY_SIZE
        cdef Py_ssize_t number
        cdef uint64_t at
        cdef int64_t code
        cdef list unclear = []
        check_timer(shared, timer_at, bits)
        self._reserve(count)
        for number in range(count):
            at = <uint64_t>(first + number) % bits
            code = get_i64(entry + number * CONSUME_QUEUE_ENTRY_SIZE + E_TAGS_CODE)
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
