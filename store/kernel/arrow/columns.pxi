# --- columns: records as the buffers of Arrow arrays ------------------------------------------------------------------

cdef enum:  # columns, numbered in the order of COLUMNS
    COLUMN_KEY, COLUMN_VALUE, COLUMN_TOPIC, COLUMN_PARTITION, COLUMN_OFFSET, COLUMN_TIMESTAMP, COLUMN_BORN_TIMESTAMP
    COLUMN_TAGS, COLUMN_PROPERTIES, COLUMN_COMMIT_LOG_OFFSET, COLUMN_SIZE, COLUMN_FLAG, COLUMN_SYS_FLAG
    COLUMN_RECONSUME_TIMES, COLUMN_BORN_HOST, COLUMN_STORE_HOST, COLUMN_MSG_ID, COLUMN_BROKER_NAME
    PROPERTY_NAMES, PROPERTY_VALUES  # the two columns inside of properties: a value for each property
    ALL_COLUMNS

cdef enum:
    MOST_ROWS = 1 << 24
    MOST_BYTES = 1 << 30
    MOST_OFFSET = 2147482624    # an offset of 32 bits, less the addresses and the id of a message
    MESSAGE_ID_SIZE = 56        # of an offset message id as text

cdef int64_t FIRST_MS = -62104060800000  # the year 2
cdef int64_t LAST_MS = 253339228799999   # the end of the year 9997

cdef int64_t microseconds(int64_t ms) noexcept nogil:
    """Return a time in microseconds; the nearest one that calendars have in every zone, as senders write what they like."""
    return 1000 * min(max(ms, FIRST_MS), LAST_MS)


COLUMNS = (
    "key", "value", "topic", "partition", "offset", "timestamp", "born_timestamp", "tags", "properties",
    "commit_log_offset", "size", "flag", "sys_flag", "reconsume_times", "born_host", "store_host", "msg_id", "broker_name",
)

@cython.final
cdef class Columns:
    """Rows of the wanted columns: records add rows, and :meth:`take` hands them over with their buffers."""

    cdef Column columns[ALL_COLUMNS]
    cdef Address born_host
    cdef Address store_host
    cdef tuple names
    cdef readonly Py_ssize_t rows
    cdef Py_ssize_t pairs               # properties of these rows
    cdef Py_ssize_t most_rows
    cdef Py_ssize_t most_bytes
    cdef Py_ssize_t variable            # bytes in columns of variable size
    cdef bint begun
    cdef bint wants_named               # columns from Named
    cdef int64_t max_opened_body_bytes
    cdef bint null_unreadable           # a body that cannot be opened is null, and not a failure
    cdef bytes opened                   # body of the row that is added
    cdef object failure                 # why the body of the last record cannot be opened
    cdef tuple origin                   # keeps the two below
    cdef const unsigned char *broker_name
    cdef Py_ssize_t broker_name_size
    cdef const unsigned char *topic     # in place of the one in records, which has a namespace; or NULL
    cdef Py_ssize_t topic_size

    def __cinit__(self, tuple names not None, *, Py_ssize_t rows, Py_ssize_t size,
                  int64_t max_opened_body_bytes=DEFAULT_LIMIT, bint null_unreadable=False):
        cdef int number
        if not 1 <= rows <= MOST_ROWS:
            raise ValueError(f"rows={rows}: a batch has 1 to {MOST_ROWS:,} rows")
        if not 1 <= size <= MOST_BYTES:
            raise ValueError(f"size={size}: a batch has 1 to {MOST_BYTES:,} bytes, and what its last message is longer")
        if not 1 <= max_opened_body_bytes <= MOST_BYTES:
            raise ValueError(f"max_opened_body_bytes={max_opened_body_bytes}: a body opens to 1 to {MOST_BYTES:,} bytes")
        self.max_opened_body_bytes = max_opened_body_bytes
        self.null_unreadable = null_unreadable
        self.names = names
        self.come_from(b"", None)
        self.most_rows = rows
        self.most_bytes = size
        for number in range(ALL_COLUMNS):
            self.columns[number].width = 4
        for number in (COLUMN_OFFSET, COLUMN_TIMESTAMP, COLUMN_BORN_TIMESTAMP, COLUMN_COMMIT_LOG_OFFSET):
            self.columns[number].width = 8
        for number in (COLUMN_KEY, COLUMN_VALUE, COLUMN_TOPIC, COLUMN_TAGS, COLUMN_BORN_HOST, COLUMN_STORE_HOST,
                       COLUMN_MSG_ID, COLUMN_BROKER_NAME, PROPERTY_NAMES, PROPERTY_VALUES):
            self.columns[number].has_data = True
        self.columns[COLUMN_KEY].has_nulls = self.columns[COLUMN_TAGS].has_nulls = True
        self.columns[COLUMN_VALUE].has_nulls = null_unreadable
        for name in names:
            if name not in COLUMNS:
                raise ValueError(f"{name!r} is not a column: those are {', '.join(COLUMNS)}")
            self.columns[<int>COLUMNS.index(name)].is_wanted = True
        if self.columns[COLUMN_PROPERTIES].is_wanted:
            self.columns[PROPERTY_NAMES].is_wanted = self.columns[PROPERTY_VALUES].is_wanted = True
        self.wants_named = (self.columns[COLUMN_KEY].is_wanted or self.columns[COLUMN_TAGS].is_wanted
                            or self.columns[COLUMN_MSG_ID].is_wanted)

    def __dealloc__(self):
        cdef int number
        for number in range(ALL_COLUMNS):
            free(self.columns[number].values)
            free(self.columns[number].data)
            free(self.columns[number].validity)

    def come_from(self, bytes broker_name not None, bytes topic):
        self.origin = broker_name, topic
        self.broker_name = <const unsigned char *>PyBytes_AS_STRING(broker_name)
        self.broker_name_size = PyBytes_GET_SIZE(broker_name)
        self.topic = NULL
        if topic is not None:
            self.topic = <const unsigned char *>PyBytes_AS_STRING(topic)
            self.topic_size = PyBytes_GET_SIZE(topic)

    def take(self):
        cdef Py_ssize_t rows = self.rows
        cdef dict taken = {}
        cdef int number
        self.begin()
        for name in self.names:
            if name in taken:
                continue
            number = COLUMNS.index(name)
            taken[name] = self.columns[number].nulls, self._buffers(number, rows)
            if number == COLUMN_PROPERTIES:
                taken[name][1].extend(
                    self._buffers(PROPERTY_NAMES, self.pairs)[1:] + self._buffers(PROPERTY_VALUES, self.pairs)[1:])
        self.rows = self.pairs = self.variable = 0
        self.begun = False
        self.opened = None
        return rows, taken

    cdef list _buffers(self, int number, Py_ssize_t count):
        cdef Column *column = &self.columns[number]
        cdef bint is_fixed = not column.has_data and number != COLUMN_PROPERTIES
        cdef list buffers = [None, handed_over(&column.values, (count if is_fixed else count + 1) * column.width)]
        if column.nulls:
            buffers[0] = handed_over(&column.validity, (count + 7) // 8)
        if column.has_data:
            buffers.append(handed_over(&column.data, column.used))
        return buffers

    cdef int begin(self) except -1:
        """Make buffers; those for data get the size that the last ones needed."""
        cdef int number
        cdef Column *column
        if self.begun:
            return 0
        for number in range(ALL_COLUMNS):
            column = &self.columns[number]
            if not column.is_wanted:
                continue
            column.room = max(<Py_ssize_t>4096, min(column.used + column.used // 8, 2 * self.most_bytes))
            column.values_room = (self.most_rows + 1) * column.width
            column.used = column.nulls = 0
            free(column.validity)
            column.validity = NULL
            column.values = <unsigned char *>malloc(column.values_room)
            if column.has_data:
                column.data = <unsigned char *>malloc(column.room)
            if column.has_nulls:
                column.validity = <unsigned char *>calloc((self.most_rows + 7) // 8, 1)
            if (column.values == NULL or (column.has_data and column.data == NULL)
                    or (column.has_nulls and column.validity == NULL)):
                raise MemoryError()
            memset(column.values, 0, 8)
        self.begun = True
        return 0

    cdef bint is_full(self, Py_ssize_t size) noexcept nogil:
        """Whether a record of ``size`` bytes has to wait for the next batch."""
        return (self.rows >= self.most_rows or self.variable > self.most_bytes
                or (self.rows > 0 and self.variable + size > MOST_OFFSET))

    cdef int add(self, const unsigned char *record, const Frame *frame, const Named *named) noexcept nogil:
        """Add a row for a checked record and return FOUND_RECORD, or return IS_FULL, IS_UNREADABLE or NO_MEMORY."""
        cdef int32_t flags = get_i32(record + R_SYS_FLAG)
        cdef bint born_v6 = flags & SYS_FLAG_BORN_HOST_V6
        cdef bint store_v6 = flags & SYS_FLAG_STORE_HOST_V6
        cdef int host_at = store_host_at(record)
        cdef const unsigned char *body = record + frame.body_at
        cdef Py_ssize_t body_size = frame.body_size
        cdef char text[MESSAGE_ID_SIZE]
        cdef bint done = True
        cdef int found
        if flags & SYS_FLAG_INNER_BATCH:  # it cannot be opened: otherwise its messages would come one by one
            body = NULL
            body_size = 0
        elif flags & SYS_FLAG_COMPRESSED and self.columns[COLUMN_VALUE].is_wanted:
            found = self._open(record, frame, &body, &body_size)
            if found != FOUND_RECORD:
                return found
        self.put64(COLUMN_OFFSET, get_i64(record + R_QUEUE_OFFSET))
        self.put64(COLUMN_TIMESTAMP, microseconds(get_i64(record + host_at - 8)))
        self.put64(COLUMN_BORN_TIMESTAMP, microseconds(get_i64(record + R_BORN_TIMESTAMP)))
        self.put64(COLUMN_COMMIT_LOG_OFFSET, get_i64(record + R_COMMIT_LOG_OFFSET))
        self.put32(COLUMN_PARTITION, get_i32(record + R_QUEUE_ID))
        self.put32(COLUMN_SIZE, <int32_t>frame.size)
        self.put32(COLUMN_FLAG, get_i32(record + R_FLAG))
        self.put32(COLUMN_SYS_FLAG, flags)
        self.put32(COLUMN_RECONSUME_TIMES, get_i32(record + reconsume_times_at(record)))
        done &= self.put(COLUMN_VALUE, body, body_size)
        if self.topic == NULL:
            done &= self.put(COLUMN_TOPIC, record + frame.topic_at, frame.topic_size)
        else:
            done &= self.put(COLUMN_TOPIC, self.topic, self.topic_size)
        done &= self.put(COLUMN_BROKER_NAME, self.broker_name, self.broker_name_size)
        if self.wants_named:
            done &= self.put(COLUMN_KEY, named.key, named.key_size)
            done &= self.put(COLUMN_TAGS, named.tags, named.tags_size)
            if named.unique != NULL:
                done &= self.put(COLUMN_MSG_ID, named.unique, named.unique_size)
            elif self.columns[COLUMN_MSG_ID].is_wanted:
                done &= self.put(COLUMN_MSG_ID, <unsigned char *>text, offset_id_text(record, host_at, store_v6, text))
        if self.columns[COLUMN_BORN_HOST].is_wanted:
            write_address(&self.born_host, record + R_BORN_HOST, born_v6)
            done &= self.put(COLUMN_BORN_HOST, <unsigned char *>self.born_host.text, self.born_host.text_size)
        if self.columns[COLUMN_STORE_HOST].is_wanted:
            write_address(&self.store_host, record + host_at, store_v6)
            done &= self.put(COLUMN_STORE_HOST, <unsigned char *>self.store_host.text, self.store_host.text_size)
        if self.columns[COLUMN_PROPERTIES].is_wanted:
            done &= self._put_properties(record + frame.properties_at, frame.properties_size)
        self.rows += 1
        return FOUND_RECORD if done else NO_MEMORY

    cdef int _open(self, const unsigned char *record, const Frame *frame, const unsigned char **body,
                   Py_ssize_t *size) noexcept with gil:
        """Point ``body`` to the opened body of a record; to NULL when the value is to be null."""
        body[0] = NULL
        size[0] = 0
        try:
            self.opened = None
            self.opened = open_body(PyBytes_FromStringAndSize(<char *>record + frame.body_at, frame.body_size),
                                    get_i32(record + R_SYS_FLAG), self.max_opened_body_bytes)
        except MemoryError:
            return NO_MEMORY
        except Exception as error:
            if self.null_unreadable and isinstance(error, BodyUnreadable):
                return FOUND_RECORD
            return self._fail(record, frame, error)
        body[0] = <const unsigned char *>PyBytes_AS_STRING(self.opened)
        size[0] = PyBytes_GET_SIZE(self.opened)
        return IS_FULL if self.rows > 0 and self.variable + frame.size + size[0] > MOST_OFFSET else FOUND_RECORD

    cdef int _fail(self, const unsigned char *record, const Frame *frame, error):
        """Note why a record cannot be opened, and where it stands."""
        topic = PyUnicode_DecodeUTF8(<char *>record + frame.topic_at, frame.topic_size, NULL)
        self.failure = type(error)(
            f"{topic}, queue {get_i32(record + R_QUEUE_ID)}, offset {get_i64(record + R_QUEUE_OFFSET)}, at "
            f"{get_i64(record + R_COMMIT_LOG_OFFSET)} of the commit log: cannot be read: {error}")
        return IS_UNREADABLE

    cdef void put32(self, int number, int32_t value) noexcept nogil:
        if self.columns[number].is_wanted:
            (<int32_t *>self.columns[number].values)[self.rows] = value

    cdef void put64(self, int number, int64_t value) noexcept nogil:
        if self.columns[number].is_wanted:
            (<int64_t *>self.columns[number].values)[self.rows] = value

    cdef bint put(self, int number, const unsigned char *at, Py_ssize_t size) noexcept nogil:
        """Put text or bytes into this row, null for NULL."""
        cdef Column *column = &self.columns[number]
        if not column.is_wanted:
            return True
        if at == NULL:
            column.nulls += 1
        elif column.has_nulls:
            column.validity[self.rows >> 3] |= <unsigned char>(1 << (self.rows & 7))
        return self._put_data(column, self.rows, at, size)

    cdef bint _put_data(self, Column *column, Py_ssize_t row, const unsigned char *at, Py_ssize_t size) noexcept nogil:
        if column.used + size > column.room and not reserve(&column.data, &column.room, column.used + size):
            return False
        if size:
            memcpy(column.data + column.used, at, size)
        column.used += size
        self.variable += size
        (<int32_t *>column.values)[row + 1] = <int32_t>column.used
        return True

    cdef bint _put_properties(self, const unsigned char *at, Py_ssize_t size) noexcept nogil:
        """Put the properties of ReceivedMessage.properties, which are all but the CRC, into this row."""
        cdef Py_ssize_t first = self.pairs
        cdef Py_ssize_t names_used = self.columns[PROPERTY_NAMES].used
        cdef Py_ssize_t values_used = self.columns[PROPERTY_VALUES].used
        cdef bint done = self._put_pairs(at, size, False)
        if done and self._has_doubles(first):
            self.variable -= self.columns[PROPERTY_NAMES].used - names_used
            self.variable -= self.columns[PROPERTY_VALUES].used - values_used
            self.columns[PROPERTY_NAMES].used = names_used
            self.columns[PROPERTY_VALUES].used = values_used
            self.pairs = first
            done = self._put_pairs(at, size, True)
        (<int32_t *>self.columns[COLUMN_PROPERTIES].values)[self.rows + 1] = <int32_t>self.pairs
        return done

    cdef bint _put_pairs(self, const unsigned char *at, Py_ssize_t size, bint has_doubles) noexcept nogil:
        cdef Column *names = &self.columns[PROPERTY_NAMES]
        cdef Column *values = &self.columns[PROPERTY_VALUES]
        cdef const unsigned char *end = at + size
        cdef const unsigned char *stop
        cdef const unsigned char *value
        while at < end:
            stop = <const unsigned char *>memchr(at, 2, end - at)
            if stop == NULL:
                stop = end
            value = <const unsigned char *>memchr(at, 1, stop - at)
            if (value != NULL and value > at and value + 1 < stop
                    and not is_name(at, value - at, N_CRC)
                    and not (has_doubles and is_set_later(at, value - at, stop + 1, end))):
                if not (reserve(&names.values, &names.values_room, (self.pairs + 2) * 4)
                        and reserve(&values.values, &values.values_room, (self.pairs + 2) * 4)
                        and self._put_data(names, self.pairs, at, value - at)
                        and self._put_data(values, self.pairs, value + 1, stop - value - 1)):
                    return False
                self.pairs += 1
            at = stop + 1
        return True

    cdef bint _has_doubles(self, Py_ssize_t first) noexcept nogil:
        """Whether two of the pairs from ``first`` on have the same name."""
        cdef const int32_t *at = <const int32_t *>self.columns[PROPERTY_NAMES].values
        cdef const unsigned char *names = self.columns[PROPERTY_NAMES].data
        cdef Py_ssize_t one, other
        for one in range(first + 1, self.pairs):
            for other in range(first, one):
                if (at[one + 1] - at[one] == at[other + 1] - at[other]
                        and memcmp(names + at[one], names + at[other], at[one + 1] - at[one]) == 0):
                    return True
        return False
