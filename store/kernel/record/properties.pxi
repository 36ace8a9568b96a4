# --- properties: pairs of name and value behind the topic of a record -------------------------------------------------

# RocketMQ keeps these for itself (MessageConst.STRING_HASH_SET); an application cannot set them as properties.
RESERVED_PROPERTIES = frozenset(
    "KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID "
    "ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY "
    "EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET "
    "TRAN_PREPARED_QUEUE_OFFSET TRANSACTION_CHECK_TIMES CHECK_IMMUNITY_TIME_IN_SECONDS __SHARDINGKEY __CRC32# "
    "TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES "
    "TIMER_DEL_UNIQKEY TIMER_QUEUE_OFFSET".split()
)


cdef enum:
    UNIQUE_PROPERTY_SIZE = 42       # UNIQ_KEY with 32 digits


cdef inline bint is_name(const unsigned char *at, Py_ssize_t size, Name name) noexcept nogil:
    """Whether a text is exactly ``name``."""
    return size == name.size and memcmp(at, name.text, name.size) == 0


cdef inline bint is_pair_of(const unsigned char *pair, Py_ssize_t size, Name name) noexcept nogil:
    """Whether a property, which stands without its separator at ``pair``, has this name."""
    return size > name.size and pair[name.size] == 1 and memcmp(pair, name.text, name.size) == 0


cdef const unsigned char *find_property(const unsigned char *at, Py_ssize_t size, Name name,
                                        Py_ssize_t *value_size) noexcept nogil:
    """Return where the value of the first property called ``name`` begins; NULL when there is no such property."""
    cdef const unsigned char *end = at + size
    cdef const unsigned char *stop
    while at < end:
        stop = <const unsigned char *>memchr(at, 2, end - at)
        if stop == NULL:
            stop = end
        if is_pair_of(at, stop - at, name):
            value_size[0] = stop - at - name.size - 1
            return at + name.size + 1
        at = stop + 1
    return NULL


cdef inline Name name_of(const char *text, Py_ssize_t size) noexcept nogil:
    """A name that is known only at run time."""
    cdef Name name
    name.text = text
    name.size = size
    return name


cdef unsigned char *put_property(unsigned char *at, Name name, const char *value, Py_ssize_t value_size) noexcept nogil:
    """Write a property; return where the next one goes."""
    memcpy(at, name.text, name.size)
    at[name.size] = 1
    memcpy(at + name.size + 1, value, value_size)
    at[name.size + 1 + value_size] = 2
    return at + name.size + value_size + 2


cdef unsigned char *put_text(unsigned char *at, Name name, bytes value) noexcept:
    """Write a property whose value is ``value``."""
    return put_property(at, name, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))


cdef const char *utf8_of(str text, str what, Py_ssize_t *size) except NULL:
    """UTF-8 of a text. Raises MessageRejected for half of a surrogate pair."""
    try:
        return PyUnicode_AsUTF8AndSize(text, size)
    except UnicodeEncodeError as error:
        raise MessageRejected(f"{what} {text!r} cannot be stored as UTF-8: {error.reason}") from None


cdef const char *text_of(str text, str what, bint word, Py_ssize_t *size) except NULL:
    """UTF-8 of a property's name or value. Raises MessageRejected when it holds a separator of the format.

    ``word``: a space is a separator, too.
    """
    cdef const unsigned char *at = <const unsigned char *>utf8_of(text, what, size)
    cdef Py_ssize_t number
    for number in range(size[0]):
        if at[number] <= 32:  # rare in real keys and tags
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
