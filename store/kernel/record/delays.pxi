# --- delays: levels, times, and the topics in which messages wait -----------------------------------------------------

SCHEDULE_TOPIC = T_SCHEDULE.text.decode()
HALF_TOPIC = T_HALF.text.decode()
OPERATION_TOPIC = T_OPERATION.text.decode()
TIMER_TOPIC = T_TIMER.text.decode()
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
DELAYS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h".split()  # of levels 1 to 18 [messageDelayLevel]

cdef enum:
    LEVELS = 18

cdef int64_t[LEVELS] DELAY_MS
for _level, _delay in enumerate(DELAYS):
    DELAY_MS[_level] = int(_delay.rstrip("smh")) * {"s": 1000, "m": 60_000, "h": 3_600_000}[_delay.lstrip("0123456789")]


def delay_ms(int level):
    if not 1 <= level <= LEVELS:
        raise ValueError(wrong_level(level, 1))
    return DELAY_MS[level - 1]


cdef int check_level(int level) except -1:
    if not 0 <= level <= LEVELS:
        raise ValueError(wrong_level(level, 0))
    return 0


cdef str wrong_level(int level, int least):
    table = ", ".join([f"{number} {delay}" for number, delay in enumerate(DELAYS, 1)])
    return f"delay_level={level}: a level is {least} to {LEVELS}{', 0 for no delay' if least == 0 else ''}: {table}"


cdef int64_t delay_ms_of(const unsigned char *level, Py_ssize_t size) noexcept nogil:
    """Delay of the level that the digits at ``level`` give; 0 for level 0, the longest delay for a level above 18."""
    cdef int64_t number = 0
    cdef Py_ssize_t position
    for position in range(size):
        if not is_digit(level[position]) or number > LEVELS:
            break
        number = number * 10 + level[position] - 48
    return 0 if number == 0 else DELAY_MS[min(number, <int64_t>LEVELS) - 1]


cdef inline bint is_schedule_topic(const unsigned char *name, Py_ssize_t size) noexcept nogil:
    """Whether entries of a topic hold times that follow from the store times of the records."""
    return is_name(name, size, T_SCHEDULE)


cdef inline bint is_timer_topic(const unsigned char *name, Py_ssize_t size) noexcept nogil:
    """Whether entries of a topic hold the times at which messages are due."""
    return is_name(name, size, T_TIMER)


cdef inline bint holds_times(const unsigned char *name, Py_ssize_t size) noexcept nogil:
    """Whether entries of a topic can hold times instead of hashes of tags."""
    return is_schedule_topic(name, size) or is_timer_topic(name, size)


cdef int64_t due_ms_of(const unsigned char *properties, Py_ssize_t properties_size) noexcept nogil:
    """When a message of the timer is due, in ms; 0 for an operation, and for a message that does not say it."""
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t position
    cdef int64_t due_ms = 0
    cdef const unsigned char *value = find_property(properties, properties_size, N_TIMER_DEL_UNIQKEY, &size)
    if value != NULL:
        return 0
    value = find_property(properties, properties_size, N_TIMER_OUT_MS, &size)
    if value == NULL or not 0 < size < 19:
        return 0
    for position in range(size):
        if not is_digit(value[position]):
            return 0
        due_ms = due_ms * 10 + value[position] - 48
    return due_ms if due_ms > MOST_TAGS_CODE else 0


cdef int64_t tags_code_of(const unsigned char *record, const Frame *frame) noexcept nogil:
    """The third field of a record's consume queue entry: the hash of its tag, or the time at which to deliver it.

    CommitLog.checkMessageAndReturnSize.
    """
    cdef const unsigned char *properties = record + frame.properties_at
    cdef const unsigned char *value
    cdef int64_t delay_ms
    cdef Py_ssize_t size = 0
    if is_schedule_topic(record + frame.topic_at, frame.topic_size):
        value = find_property(properties, frame.properties_size, N_DELAY, &size)
        delay_ms = 0 if value == NULL else delay_ms_of(value, size)
        if delay_ms:
            return store_timestamp_of(record) + delay_ms
    if is_timer_topic(record + frame.topic_at, frame.topic_size):
        delay_ms = due_ms_of(properties, frame.properties_size)
        if delay_ms:
            return delay_ms
    value = find_property(properties, frame.properties_size, N_TAGS, &size)
    return 0 if value == NULL else hash_utf8(value, size)
