# --- the queue map: message queues by topic and id --------------------------------------------------------------------

cdef enum:
    MOST_TOPIC_BYTES = 127


cdef struct QueueKey:
    uint32_t hash
    int32_t queue_id
    int topic_size
    char topic[MOST_TOPIC_BYTES]


cdef uint32_t hash_of_queue(const unsigned char *topic, Py_ssize_t size, int32_t queue_id) noexcept nogil:
    """Hash over every byte of a topic, eight at a time; the last eight may be read twice."""
    cdef uint64_t value = <uint64_t>queue_id ^ <uint64_t>size << 32
    cdef uint64_t word = 0
    cdef Py_ssize_t at = 0
    if size < 8:
        memcpy(&word, topic, size)
        return <uint32_t>((value ^ word) * 0x9E3779B97F4A7C15ULL >> 32)
    while at < size:
        memcpy(&word, topic + min(at, size - 8), 8)
        value = (value ^ word) * 0x9E3779B97F4A7C15ULL
        value ^= value >> 32
        at += 8
    return <uint32_t>value


@cython.final
cdef class _QueueMap:
    """Gives each message queue a number, from 0 on in the order in which queues are added.

    A hash table with open addressing holds the numbers; what belongs to a queue stands in an array of the map's user.
    """

    cdef QueueKey *keys                 # by number
    cdef int32_t *places                # the table: number + 1, 0 for an empty place
    cdef uint32_t room                  # of the table: a power of two, at least twice ``count``
    cdef int32_t count

    def __dealloc__(self):
        free(self.keys)
        free(self.places)

    cdef int32_t find(self, const unsigned char *topic, Py_ssize_t size, int32_t queue_id) noexcept nogil:
        """Return the number of a queue, -1 for a queue that was not added."""
        cdef uint32_t hash, place
        cdef const QueueKey *key
        if self.count == 0:
            return -1
        hash = hash_of_queue(topic, size, queue_id)
        place = hash & (self.room - 1)
        while self.places[place]:
            key = &self.keys[self.places[place] - 1]
            if (key.hash == hash and key.queue_id == queue_id and key.topic_size == size
                    and memcmp(key.topic, topic, size) == 0):
                return self.places[place] - 1
            place = (place + 1) & (self.room - 1)
        return -1

    cdef int32_t add(self, const unsigned char *topic, Py_ssize_t size, int32_t queue_id) except -1:
        """Return the number of a queue, which may be there already."""
        cdef int32_t number = self.find(topic, size, queue_id)
        cdef QueueKey *key
        if number >= 0:
            return number
        if not 0 < size <= MOST_TOPIC_BYTES:
            raise ValueError(f"topic {topic[:size]!r}: it has {size} bytes, and a topic 1 to {MOST_TOPIC_BYTES}")
        if 2 * (<uint32_t>self.count + 1) > self.room:
            self.grow()
        key = &self.keys[self.count]
        key.hash = hash_of_queue(topic, size, queue_id)
        key.queue_id = queue_id
        key.topic_size = <int>size
        memcpy(key.topic, topic, size)
        self.count += 1
        self.enter(self.count - 1)
        return self.count - 1

    cdef str topic_of(self, int32_t number):
        cdef const QueueKey *key = &self.keys[number]
        return key.topic[:key.topic_size].decode()

    cdef int grow(self) except -1:
        """Make a table of twice the room, and keys for half of its places."""
        cdef uint32_t room = max(64, 2 * self.room)
        cdef int32_t *places = <int32_t *>calloc(room, sizeof(int32_t))
        cdef void *keys = realloc(self.keys, room // 2 * sizeof(QueueKey))
        cdef int32_t number
        if keys != NULL:
            self.keys = <QueueKey *>keys
        if places == NULL or keys == NULL:
            free(places)
            raise MemoryError()
        free(self.places)
        self.places = places
        self.room = room
        for number in range(self.count):
            self.enter(number)
        return 0

    cdef void enter(self, int32_t number) noexcept:
        cdef uint32_t place = self.keys[number].hash & (self.room - 1)
        while self.places[place]:
            place = (place + 1) & (self.room - 1)
        self.places[place] = number + 1
