# --- routes and plans: the queues of a topic, and records in memory of their own ----------------------------------

@cython.final
cdef class Route:
    """The queues of one topic, as an appender needs them."""

    cdef readonly str topic
    cdef readonly bint compact          # each message has a key, which chooses its queue
    cdef bytes name
    cdef list queues
    cdef int *slots
    cdef int *queue_ids
    cdef int count
    cdef unsigned int turn

    def __init__(self, str topic not None, list queues not None, list slots not None, bint compact=False):
        cdef int number
        self.topic = topic
        self.compact = compact
        self.name = topic.encode()
        self.queues = list(queues)
        self.turn = int.from_bytes(os.urandom(2), "little")
        if not slots or len(queues) != len(slots):
            raise ValueError(f"topic {topic}: {len(queues)} queues for {len(slots)} slots")
        self.slots = <int *>realloc(self.slots, len(slots) * sizeof(int))
        self.queue_ids = <int *>realloc(self.queue_ids, len(slots) * sizeof(int))
        if self.slots == NULL or self.queue_ids == NULL:
            raise MemoryError()
        self.count = <int>len(slots)
        for number in range(self.count):
            self.slots[number] = slots[number]
            self.queue_ids[number] = queues[number].queue_id

    def __dealloc__(self):
        free(self.slots)
        free(self.queue_ids)

    cdef int number_of(self, int queue_id) except -1:
        """Number of the queue with an id."""
        cdef int number
        for number in range(self.count):
            if self.queue_ids[number] == queue_id:
                return number
        raise MessageRejected(f"topic {self.topic!r} has {self.count} queues, and none with the id {queue_id}")

    cdef str sharding(self, Message message, str sharding_key):
        """What chooses the queue of a message: in a compact topic its first key, unless its sender says otherwise."""
        if not self.compact:
            return sharding_key
        if not message.keys:
            raise MessageRejected(
                f"topic {self.topic!r} is compact: it keeps the latest message of each key, and this one has no key: "
                "give it one, as in keys=[\"AAPL\"]")
        return <str?>message.keys[0] if sharding_key is None else sharding_key

    cdef int pick(self, str sharding_key) except -1:
        """Number of the queue: by key as SelectMessageQueueByHash, else one after the other."""
        cdef Py_ssize_t size = 0
        cdef const char *text
        cdef int32_t remainder
        if sharding_key is None:
            self.turn += 1
            return self.turn % <unsigned int>self.count
        text = PyUnicode_AsUTF8AndSize(sharding_key, &size)
        remainder = hash_utf8(<const unsigned char *>text, size) % self.count  # C's remainder, as Java's
        return -remainder if remainder < 0 else remainder


@cython.final
cdef class _Plan:
    """Memory of one append, kept for the next one."""

    cdef unsigned char *staged
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef Py_ssize_t properties_at       # of the record that is staged now
    cdef int32_t *sizes
    cdef int64_t *tags_codes
    cdef int count
    cdef int room
    cdef int64_t delay_ms
    cdef uint64_t progress_at
    cdef uint64_t progress_from
    cdef uint64_t done_at
    cdef uint64_t done_bit
    cdef uint64_t done_offset
    cdef uint64_t timer_room
    cdef bint makes_room
    cdef uint64_t guard_at[GUARDS]
    cdef uint64_t guard_value[GUARDS]
    cdef int other_slot                 # of the queue that the last record goes to, -1 when it goes to that of the others

    def __dealloc__(self):
        free(self.staged)
        free(self.sizes)
        free(self.tags_codes)

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef void *grown
        if self.size + more > self.capacity:
            grown = realloc(self.staged, max(2 * self.capacity, self.size + more))
            if grown == NULL:
                raise MemoryError()
            self.staged = <unsigned char *>grown
            self.capacity = max(2 * self.capacity, self.size + more)
        return 0

    cdef int reserve_records(self, int count) except -1:
        cdef void *sizes
        cdef void *codes
        if count > self.room:
            sizes = realloc(self.sizes, count * sizeof(int32_t))
            if sizes == NULL:
                raise MemoryError()
            self.sizes = <int32_t *>sizes
            codes = realloc(self.tags_codes, count * sizeof(int64_t))
            if codes == NULL:
                raise MemoryError()
            self.tags_codes = <int64_t *>codes
            self.room = count
        return 0


cdef unsigned char *put_property(unsigned char *at, const char *name, Py_ssize_t name_size, const char *value,
                                 Py_ssize_t value_size) noexcept nogil:
    memcpy(at, name, name_size)
    at[name_size] = 1
    memcpy(at + name_size + 1, value, value_size)
    at[name_size + 1 + value_size] = 2
    return at + name_size + value_size + 2


cdef const char *text_of(str text, str what, bint word, Py_ssize_t *size) except NULL:
    """UTF-8 of a property's name or value, refused when it holds a separator of the format."""
    cdef const unsigned char *at
    cdef Py_ssize_t number
    try:
        at = <const unsigned char *>PyUnicode_AsUTF8AndSize(text, size)
    except UnicodeEncodeError as error:
        raise MessageRejected(f"{what} {text!r} cannot be stored as UTF-8: {error.reason}") from None
    for number in range(size[0]):
        if at[number] <= 32:  # rare, in what people use for keys and tags
            if at[number] == 1 or at[number] == 2:
                raise MessageRejected(
                    f"{what} {text[:80]!r} holds byte 0x01 or 0x02, which separate properties on disk: remove it")
            if word and at[number] == 32:
                raise MessageRejected(f"{what} {text[:80]!r} holds a space, which separates keys on disk: replace it")
    return <const char *>at


cdef uint32_t spread_hash(bytes name) noexcept:
    """HashMap.hash of Java."""
    cdef uint32_t value = hash_utf8(<const unsigned char *>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
    return value ^ value >> 16


cdef list order_of_hash_map(dict pairs):
    """Names in the order in which Java's HashMap would give them: by bucket, then as they came."""
    cdef Py_ssize_t buckets = 16
    while 4 * len(pairs) > 3 * buckets:
        buckets *= 2
    return [name for _, _, name in sorted([
        (spread_hash(name) & (buckets - 1), number, name) for number, name in enumerate(pairs)])]
