# --- routes: the queues of a topic ------------------------------------------------------------------------------------

@cython.final
cdef class Route:
    """The queues of one topic, for an appender. A queue has a number here, its id, and its slot in the runtime file.

    New messages go to those whose ids are below ``write_count``, to any if it is None. ``settings`` are those of the
    topic that say so.
    """

    cdef readonly str topic
    cdef readonly object settings
    cdef readonly bint compact          # each message has a key, which chooses its queue
    cdef bytes name
    cdef list queues
    cdef int *slots
    cdef int *queue_ids
    cdef int count
    cdef int open_count                 # the first of them take new messages
    cdef unsigned int turn

    def __init__(self, str topic not None, list queues not None, list slots not None, bint compact=False,
                 write_count=None, settings=None):
        cdef int number
        self.topic = topic
        self.settings = settings
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
            if write_count is None or queues[number].queue_id < write_count:
                self.open_count = number + 1

    def __dealloc__(self):
        free(self.slots)
        free(self.queue_ids)

    cdef bint has(self, int queue_id) noexcept:
        cdef int number
        for number in range(self.count):
            if self.queue_ids[number] == queue_id:
                return True
        return False

    cdef int number_of(self, int queue_id) except -1:
        """Number of the queue with an id. Raises MessageRejected."""
        cdef int number
        for number in range(self.count):
            if self.queue_ids[number] == queue_id:
                return number
        raise MessageRejected(f"topic {self.topic!r} has {self.count} queues, and no queue with the id {queue_id}")

    cdef int landing(self, int queue_id, ReceivedMessage message) except -1:
        """Number of the queue for a message that was stored on its way to the queue with an id.

        One that takes no new messages any more would fill while it is to drain. A topic without any takes it as it was
        meant: what is stored is not refused.
        """
        cdef int number = self.number_of(queue_id)
        cdef str key
        if number < self.open_count or self.open_count == 0:
            return number
        key = message.sharding_key
        if key is None and self.compact and message.keys:
            key = message.keys[0]
        return number % self.open_count if key is None else self.pick(key)

    cdef str sharding(self, Message message, str sharding_key):
        """The text that chooses the queue of a message.

        In a compact topic its first key, if there is no sharding key.
        """
        if not self.compact:
            return sharding_key
        if not message.keys:
            raise MessageRejected(
                f"topic {self.topic!r} is compact: it keeps the latest message of each key, and this one has no key: "
                "give it one, as in keys=[\"AAPL\"]")
        return <str?>message.keys[0] if sharding_key is None else sharding_key

    cdef int pick(self, str sharding_key) except -1:
        """Number of the queue: by the key as SelectMessageQueueByHash does it; without a key the queues take turns."""
        cdef Py_ssize_t size = 0
        cdef const char *text
        cdef int32_t remainder
        if self.open_count == 0:
            raise TopicNotWritable(
                f"topic {self.topic!r} takes no messages: its permission or its number of write queues says so. Nothing "
                f"was written; `rmq topic update {self.topic} --perm rw` opens it")
        if sharding_key is None:
            self.turn += 1
            return self.turn % <unsigned int>self.open_count
        text = utf8_of(sharding_key, "sharding key", &size)
        remainder = hash_utf8(<const unsigned char *>text, size) % self.open_count  # C's remainder, as Java's
        return -remainder if remainder < 0 else remainder


@cython.final
cdef class _Routes:
    """The routes that an appender knows. ``make_route`` returns the :class:`Route` of a topic that it meets first.

    When a process has changed a topic, which the word at byte ``changes_at`` tells, those routes are made again of
    which ``is_current`` says so.
    """

    cdef object make_route
    cdef object is_current
    cdef Mapping shared
    cdef Py_ssize_t changes_at
    cdef uint32_t changes
    cdef dict routes
    cdef dict of_waiting                # of the topics in which messages wait

    def __cinit__(self, object make_route, object is_current, Mapping shared, Py_ssize_t changes_at):
        if not 0 <= changes_at <= shared.size - 4:
            raise ValueError(f"byte {changes_at} is not a word of the runtime file")
        self.make_route = make_route
        self.is_current = is_current
        self.shared = shared
        self.changes_at = changes_at
        self.changes = load32(shared.address + changes_at)
        self.routes = {}
        self.of_waiting = {}

    cdef Route find(self, str topic):
        """The route of a topic that applications may send to. Raises MessageRejected for a topic of the store's own."""
        cdef PyObject *found
        if load32(self.shared.address + self.changes_at) != self.changes:
            self.look_again()
        found = PyDict_GetItem(self.routes, topic)
        if found != NULL:
            return <Route>found
        if topic == SCHEDULE_TOPIC:
            raise MessageRejected(f"topic {topic!r} holds messages that wait for their delay level: give a delay_level")
        if topic == TIMER_TOPIC:
            raise MessageRejected(f"topic {topic!r} holds messages that wait for their time: give a delay or deliver_at")
        if topic == HALF_TOPIC or topic == OPERATION_TOPIC or topic == GIVEN_UP_TOPIC:
            raise MessageRejected(f"topic {topic!r} belongs to transactions: begin one for the topic the message is for")
        route = self.make_route(topic)
        self.routes[topic] = route
        return <Route?>route

    cdef int look_again(self) except -1:
        """Forget the routes of topics that have other settings now."""
        self.changes = load32(self.shared.address + self.changes_at)  # before the settings, which are changed first
        for topic, route in list(self.routes.items()):
            if not self.is_current(route):
                self.routes.pop(topic, None)
        return 0

    cdef Route to(self, str topic, int queue_id):
        """The route of a topic, made again when it does not have the queue."""
        if not self.find(topic).has(queue_id):
            self.routes.pop(topic, None)
        return self.find(topic)

    cdef Route waiting(self, str topic):
        """The route of a topic in which messages wait."""
        if topic not in self.of_waiting:
            self.of_waiting[topic] = self.make_route(topic)
        return <Route?>self.of_waiting[topic]
