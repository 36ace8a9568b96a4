# --- staged records: the rows of a data frame on their way into the log -----------------------------------------------
# Tasks encode them and append nothing; one process appends them all when every task is done (store/append/staged.py).

cdef enum:
    RUN_MAGIC = 0x524D5153          # RMQS
    RUN_SIZE = 4
    RUN_COUNT = 8
    RUN_QUEUE_ID = 12
    RUN_TOPIC_SIZE = 16
    RUN_HEADER_SIZE = 17            # without the topic, which follows
    STAGED_ROW = 8                  # behind the tags code
    STAGED_PREFIX_SIZE = 16
    UNIQUE_VALUE_FROM_END = CRC_PROPERTY_SIZE + 33
    MOST_CHUNK_BYTES = 262144       # of one append section: every other sender waits that long
    MOST_CHUNK_RECORDS = 1000
    MOST_TRIES = 10

cdef struct StagedGroup:            # the run of one queue that is being written
    unsigned char *at
    Py_ssize_t size
    Py_ssize_t capacity
    int32_t count


@cython.final
cdef class _StagedTopic:
    cdef str name
    cdef bytes text
    cdef int queue_count
    cdef unsigned int turn
    cdef StagedGroup *groups

    def __dealloc__(self):
        cdef int number
        if self.groups != NULL:
            for number in range(self.queue_count):
                free(self.groups[number].at)
            free(self.groups)


@cython.final
cdef class Stager:
    """Encodes the rows of one part into runs of staged records."""

    cdef object queue_count_of
    cdef dict topics                    # by their UTF-8, in the order of their first rows
    cdef _StagedTopic fixed             # the topic of every row, or None
    cdef _StagedTopic recent
    cdef int part
    cdef Py_ssize_t max_body_bytes
    cdef Py_ssize_t max_record_bytes
    cdef unsigned char born_host[8]
    cdef unsigned char store_host[8]
    cdef Py_ssize_t capacity            # of all groups
    cdef readonly int64_t rows
    cdef readonly Py_ssize_t buffered
    cdef readonly Py_ssize_t size
    cdef readonly uint32_t digest
    cdef readonly uint64_t content

    def __init__(self, object queue_count_of, *, str topic, int part, Py_ssize_t max_body_bytes, Py_ssize_t log_file_bytes,
                 bytes born_host not None, bytes store_host not None):
        if len(born_host) != 8 or len(store_host) != 8:
            raise ValueError("hosts are 4 + 4 bytes")
        self.queue_count_of = queue_count_of
        self.topics = {}
        self.part = part
        self.max_body_bytes = max_body_bytes
        self.max_record_bytes = log_file_bytes - BLANK_RECORD_SIZE
        memcpy(self.born_host, PyBytes_AS_STRING(born_host), 8)
        memcpy(self.store_host, PyBytes_AS_STRING(store_host), 8)
        if topic is not None:
            self.fixed = self.add_topic(topic.encode())

    @property
    def queue_counts(self):
        cdef _StagedTopic topic
        cdef dict counts = {}
        for topic in self.topics.values():
            counts[topic.name] = topic.queue_count
        return counts

    def add(self, int64_t row, int64_t stop, Py_ssize_t most_bytes, *, value, key=None, topic=None, partition=None, tags=None, properties=None,
            born_timestamp=None):
        cdef RowColumns columns
        memset(&columns, 0, sizeof(RowColumns))
        point_texts(&columns.value, arrow_column(value), 0)
        if key is not None:
            point_texts(&columns.key, arrow_column(key), 0)
        if topic is not None:
            point_texts(&columns.topic, arrow_column(topic), 0)
        if tags is not None:
            point_texts(&columns.tags, arrow_column(tags), 0)
        if partition is not None:
            point_numbers(&columns.partition, arrow_column(partition))
        if born_timestamp is not None:
            point_numbers(&columns.born, arrow_column(born_timestamp))
        if properties is not None:
            point_pairs(&columns.properties, arrow_column(properties))
        while row < stop and self.buffered < most_bytes:
            self.stage(&columns, row)
            self.rows += 1
            row += 1
        return row

    def drain(self, write):
        cdef _StagedTopic topic
        cdef StagedGroup *group
        cdef int queue_id
        cdef bint shrink = self.capacity > 4 * self.buffered + (1 << 26)
        for topic in self.topics.values():
            for queue_id in range(topic.queue_count):
                group = &topic.groups[queue_id]
                if group.count:
                    put_i32(group.at, RUN_MAGIC)
                    put_i32(group.at + RUN_SIZE, <int32_t>group.size)
                    put_i32(group.at + RUN_COUNT, group.count)
                    put_i32(group.at + RUN_QUEUE_ID, queue_id)
                    self.digest = rmq_crc32(self.digest, group.at, group.size)
                    self.size += group.size
                    write(PyMemoryView_FromMemory(<char *>group.at, group.size, PyBUF_READ))
                    group.count = 0
                    group.size = 0
                if shrink:
                    free(group.at)
                    group.at = NULL
                    self.capacity -= group.capacity
                    group.capacity = 0
        self.buffered = 0

    cdef _StagedTopic add_topic(self, bytes text):
        cdef _StagedTopic topic = _StagedTopic.__new__(_StagedTopic)
        try:
            topic.name = text.decode()
        except UnicodeDecodeError:
            raise MessageRejected(
                f"{self.here()}: topic {text[:60]!r} is not text: a topic is 1 to 127 of %a-zA-Z0-9_-"
            ) from None
        topic.text = text
        topic.turn = <unsigned int>self.part
        topic.queue_count = self.queue_count_of(topic.name)
        topic.groups = <StagedGroup *>calloc(topic.queue_count, sizeof(StagedGroup))
        if topic.groups == NULL:
            topic.queue_count = 0
            raise MemoryError()
        self.topics[text] = topic
        return topic

    cdef str here(self):
        return f"row {self.rows} of part {self.part}"

    cdef _StagedTopic topic_of(self, RowColumns *columns, int64_t row):
        cdef Py_ssize_t size = 0
        cdef const unsigned char *at
        if self.fixed is not None:
            return self.fixed
        at = text_at(&columns.topic, row, &size)
        if at == NULL:
            raise MessageRejected(
                f"{self.here()}: column topic is null: give every row a topic, or all of them one by the option topic")
        if (self.recent is not None and PyBytes_GET_SIZE(self.recent.text) == size
                and memcmp(PyBytes_AS_STRING(self.recent.text), at, size) == 0):
            return self.recent
        text = at[:size]
        self.recent = self.topics.get(text)
        if self.recent is None:
            self.recent = self.add_topic(text)
        return self.recent

    cdef int queue_of(self, RowColumns *columns, int64_t row, _StagedTopic topic, const unsigned char *key,
                      Py_ssize_t key_size) except -1:
        """The partition that the row names; or by its key as SelectMessageQueueByHash; or the queues take turns."""
        cdef int64_t number = columns.partition.first + row
        cdef int32_t chosen
        if columns.partition.values != NULL and is_set(columns.partition.valid, number):
            chosen = (<const int32_t *>columns.partition.values)[number]
            if not 0 <= chosen < topic.queue_count:
                raise MessageRejected(
                    f"{self.here()}: partition {chosen}: topic {topic.name!r} has {topic.queue_count} queues, with the ids 0 to "
                    f"{topic.queue_count - 1}: name one of them, or leave the column out")
            return chosen
        if key_size:
            chosen = hash_utf8(key, key_size) % topic.queue_count  # C's remainder, as Java's
            return -chosen if chosen < 0 else chosen
        topic.turn += 1
        return (topic.turn - 1) % <unsigned int>topic.queue_count

    cdef int check(self, const unsigned char *at, Py_ssize_t size, str what) except -1:
        cdef int problem = problem_of(at, size)
        if problem == HAS_SEPARATOR:
            raise MessageRejected(
                f"{self.here()}: {what} {at[:min(size, 80)]!r} holds byte 0x01 or 0x02, which separate properties on disk: "
                "remove it")
        if problem == IS_NO_UTF8:
            raise MessageRejected(
                f"{self.here()}: {what} {at[:min(size, 80)]!r} is not UTF-8: encode it, as by base64(...) or hex(...)"
            )
        return 0

    cdef Py_ssize_t pairs_size(self, Pairs *pairs, int64_t row) except -1:
        """Check the properties of a row; return the bytes that they take."""
        cdef int64_t number = pairs.first + row
        cdef int64_t each
        cdef const unsigned char *name
        cdef const unsigned char *value
        cdef Py_ssize_t name_size = 0
        cdef Py_ssize_t value_size = 0
        cdef Py_ssize_t used = 0
        if pairs.ends == NULL or not is_set(pairs.valid, number):
            return 0
        for each in range(pairs.ends[number], pairs.ends[number + 1]):
            name = text_at(&pairs.names, each, &name_size)
            value = text_at(&pairs.values, each, &value_size)
            if name_size == 0 or value_size == 0:
                raise MessageRejected(
                    f"{self.here()}: property {b'' if name == NULL else name[:min(name_size, 80)]!r} has an empty or null name or "
                    "value, which RocketMQ drops: remove it, as by map_filter(properties, (k, v) -> length(v) > 0)")
            self.check(name, name_size, "property name")
            self.check(value, value_size, "property value")
            if is_reserved(name, name_size):
                raise MessageRejected(
                    f"{self.here()}: property {name[:name_size].decode()!r} belongs to the queue itself: choose another name, or "
                    "remove it, as by map_filter(properties, (k, v) -> k NOT IN ('KEYS', 'TAGS', 'UNIQ_KEY'))")
            used += name_size + value_size + 2
        return used

    cdef int stage(self, RowColumns *columns, int64_t row) except -1:
        """Write the record of one row behind the others of its queue."""
        cdef Row given
        cdef _StagedTopic topic
        cdef int queue_id
        self.look_at(columns, row, &given)
        topic = self.topic_of(columns, row)
        if given.key_size:
            self.check(given.key, given.key_size, "key")
        if given.tags_size:
            self.check(given.tags, given.tags_size, "tags")
        given.properties_size += self.pairs_size(&columns.properties, row)
        if given.properties_size > MAX_SENT_PROPERTIES_BYTES:
            raise PropertiesTooLarge(
                f"{self.here()}: key, tags and properties take {given.properties_size} bytes on disk, more than "
                f"{MAX_SENT_PROPERTIES_BYTES}: shorten them")
        queue_id = self.queue_of(columns, row, topic, given.key, given.key_size)
        given.total = RECORD_FIXED_SIZE + given.body_size + PyBytes_GET_SIZE(topic.text) + given.properties_size
        if given.total > self.max_record_bytes:
            raise BodyTooLarge(
                f"{self.here()}: a record of {given.total} bytes; one commit log file holds {self.max_record_bytes}: split "
                "the body")
        self.write(columns, row, &given, topic, queue_id)
        return 0

    cdef int look_at(self, RowColumns *columns, int64_t row, Row *given) except -1:
        """Find the values of a row, and the size of its properties without those of its column ``properties``."""
        given.body = text_at(&columns.value, row, &given.body_size)
        given.key = text_at(&columns.key, row, &given.key_size)
        given.tags = text_at(&columns.tags, row, &given.tags_size)
        given.is_chosen = (
            columns.partition.values != NULL and is_set(columns.partition.valid, columns.partition.first + row))
        given.born = born_at(&columns.born, row)
        if given.body == NULL:
            raise MessageRejected(
                f"{self.here()}: column value is null: a message has a body; filter such rows out, or coalesce them")
        if given.body_size > self.max_body_bytes:
            raise BodyTooLarge(
                f"{self.here()}: a body of {given.body_size} bytes is over the limit of {self.max_body_bytes} "
                "(max_body_bytes): split it, or store the data elsewhere and send a reference")
        given.sharded = given.key_size and not given.is_chosen
        given.properties_size = UNIQUE_PROPERTY_SIZE + CRC_PROPERTY_SIZE
        if given.key_size:
            given.properties_size += given.key_size + N_KEYS.size + 2
        if given.sharded:
            given.properties_size += given.key_size + N_SHARDING_KEY.size + 2
        if given.tags_size:
            given.properties_size += given.tags_size + N_TAGS.size + 2
        return 0

    cdef int write(self, RowColumns *columns, int64_t row, const Row *given, _StagedTopic topic, int queue_id) except -1:
        """Write a checked row as a record at the end of the run of its queue."""
        cdef StagedGroup *group = self.room_for(&topic.groups[queue_id], STAGED_PREFIX_SIZE + given.total, topic)
        cdef unsigned char *record = group.at + group.size + STAGED_PREFIX_SIZE
        cdef unsigned char *body_end = record + RECORD_HEADER_SIZE + given.body_size
        cdef unsigned char *at
        put_i64(group.at + group.size, hash_utf8(given.tags, given.tags_size) if given.tags_size else 0)
        put_i64(group.at + group.size + STAGED_ROW, self.rows)
        at = put_head(record, queue_id, given.born, self.born_host, self.store_host, given.body, given.body_size,
                      PyBytes_AS_STRING(topic.text), PyBytes_GET_SIZE(topic.text))
        put_i32(record, <int32_t>given.total)
        put_i16(at, <int>given.properties_size)
        at += 2
        if given.key_size:
            at = put_property(at, N_KEYS, <const char *>given.key, given.key_size)
        if given.tags_size:
            at = put_property(at, N_TAGS, <const char *>given.tags, given.tags_size)
        at = self.put_pairs(at, &columns.properties, row)
        if given.sharded:
            at = put_property(at, N_SHARDING_KEY, <const char *>given.key, given.key_size)
        self.content += mixed(
            mixed(<uint64_t>get_i32(record + R_BODY_CRC) << 32 | <uint64_t>given.body_size)
            ^ mixed(<uint64_t>given.born + <uint64_t>(queue_id + 1 if given.is_chosen else 0))
            ^ rmq_crc32(0, body_end, at - body_end))
        put_row_key(at, self.rows)
        group.size += STAGED_PREFIX_SIZE + given.total
        group.count += 1
        self.buffered += STAGED_PREFIX_SIZE + given.total
        return 0

    cdef unsigned char *put_pairs(self, unsigned char *at, Pairs *pairs, int64_t row) noexcept:
        cdef int64_t number = pairs.first + row
        cdef int64_t each
        cdef const unsigned char *name
        cdef const unsigned char *value
        cdef Py_ssize_t name_size = 0
        cdef Py_ssize_t value_size = 0
        if pairs.ends == NULL or not is_set(pairs.valid, number):
            return at
        for each in range(pairs.ends[number], pairs.ends[number + 1]):
            name = text_at(&pairs.names, each, &name_size)
            value = text_at(&pairs.values, each, &value_size)
            at = put_property(at, name_of(<const char *>name, name_size), <const char *>value, value_size)
        return at

    cdef StagedGroup *room_for(self, StagedGroup *group, Py_ssize_t more, _StagedTopic topic) except NULL:
        cdef Py_ssize_t head = RUN_HEADER_SIZE + PyBytes_GET_SIZE(topic.text)
        cdef Py_ssize_t wanted = group.size + more + (head if group.size == 0 else 0)
        cdef void *grown
        if wanted > group.capacity:
            wanted = max(2 * group.capacity, wanted)
            grown = realloc(group.at, wanted)
            if grown == NULL:
                raise MemoryError()
            self.capacity += wanted - group.capacity
            group.at = <unsigned char *>grown
            group.capacity = wanted
        if group.size == 0:
            group.at[RUN_TOPIC_SIZE] = <unsigned char>PyBytes_GET_SIZE(topic.text)
            memcpy(group.at + RUN_HEADER_SIZE, PyBytes_AS_STRING(topic.text), PyBytes_GET_SIZE(topic.text))
            group.size = head
        return group
