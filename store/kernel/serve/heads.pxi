# --- heads: the headers of requests to send a message, in both serializations -----------------------------------------

cdef enum:  # codes and flags [RequestCode, RemotingCommand]
    SEND_MESSAGE = 10
    SEND_MESSAGE_V2 = 310
    FLAG_RESPONSE = 1
    FLAG_ONEWAY = 2

cdef enum:  # fields, by their short names from "a" on [SendMessageRequestHeaderV2]
    F_PRODUCER_GROUP = 0
    F_TOPIC = 1
    F_DEFAULT_TOPIC = 2
    F_DEFAULT_QUEUES = 3
    F_QUEUE_ID = 4
    F_SYS_FLAG = 5
    F_BORN_TIMESTAMP = 6
    F_FLAG = 7
    F_PROPERTIES = 8
    F_RECONSUME_TIMES = 9
    F_UNIT_MODE = 10
    F_MOST_RECONSUME_TIMES = 11
    F_BATCH = 12
    SEND_FIELDS = 13
    NEEDED_FIELDS = 0xFF          # up to F_FLAG

cdef enum:  # keys of a header, as bits
    K_CODE = 1
    K_FLAG = 2
    K_OPAQUE = 4
    K_VERSION = 8
    K_FIELDS = 16


cdef struct Names:
    Name long_names[SEND_FIELDS]


cdef Names SENDING
_long_names = ("producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag properties "
               "reconsumeTimes unitMode maxReconsumeTimes batch").split()
_long_texts = [name.encode() for name in _long_names]  # keeps the bytes that the names point to
for _number in range(SEND_FIELDS):
    SENDING.long_names[_number] = name_of(PyBytes_AS_STRING(<bytes>_long_texts[_number]), len(_long_texts[_number]))


cdef struct Head:                 # a header; all zeros before it is read
    int32_t code
    int32_t flag
    int32_t opaque
    int keys                      # that were met
    uint32_t short_seen           # bits of the fields
    uint32_t long_seen
    Text short_fields[SEND_FIELDS]
    Text long_fields[SEND_FIELDS]


cdef bint note_field(Head *head, const Text *name, const Text *value) noexcept nogil:
    """Keep a field if it is one of a send; False for a field that is there twice."""
    cdef uint32_t bit
    cdef int number
    if name.size == 1:
        number = name.at[0] - 97
        if not 0 <= number < SEND_FIELDS:
            return True
        bit = <uint32_t>1 << number
        head.short_fields[number] = value[0]
        if head.short_seen & bit:
            return False
        head.short_seen |= bit
        return True
    for number in range(SEND_FIELDS):
        if is_name(name.at, name.size, SENDING.long_names[number]):
            bit = <uint32_t>1 << number
            head.long_fields[number] = value[0]
            if head.long_seen & bit:
                return False
            head.long_seen |= bit
            return True
    return True


cdef const unsigned char *read_json_fields(const unsigned char *at, const unsigned char *end, Head *head,
                                           unsigned char **scratch) noexcept nogil:
    """Read the object behind the brace before ``at``; return where it ends."""
    cdef Text name, value
    if at < end and at[0] == 125:
        return at + 1
    while at < end and at[0] == 34:
        at = json_text(at + 1, end, &name, scratch)
        if at == NULL or end - at < 2 or at[0] != 58:
            return NULL
        at = json_text(at + 2, end, &value, scratch) if at[1] == 34 else json_word(at + 1, end, &value)
        if at == NULL or at == end or not note_field(head, &name, &value):
            return NULL
        if at[0] == 125:
            return at + 1
        if at[0] != 44:
            return NULL
        at += 1
    return NULL


cdef const unsigned char *read_json_value(const unsigned char *at, const unsigned char *end, const Text *name, Head *head,
                                          unsigned char **scratch) noexcept nogil:
    """Read what a key of a header has; return where it ends."""
    cdef Text value
    cdef int32_t version = 0
    cdef int key = 0
    cdef int32_t *number = &version
    if is_text(name, "code", 4):
        key, number = K_CODE, &head.code
    elif is_text(name, "flag", 4):
        key, number = K_FLAG, &head.flag
    elif is_text(name, "opaque", 6):
        key, number = K_OPAQUE, &head.opaque
    elif is_text(name, "version", 7):
        key = K_VERSION
    elif is_text(name, "extFields", 9):
        key = K_FIELDS
    if key & head.keys:
        return NULL
    head.keys |= key
    if key == K_FIELDS:
        return read_json_fields(at + 1, end, head, scratch) if at < end and at[0] == 123 else NULL
    if key:
        at = json_number(at, end, &value)
        return at if at != NULL and int32_of_text(&value, number) else NULL
    return json_text(at + 1, end, &value, scratch) if at < end and at[0] == 34 else NULL


cdef bint read_json_head(const unsigned char *at, const unsigned char *end, Head *head, unsigned char *scratch) noexcept nogil:
    """Read a header that a client of RocketMQ wrote; ``scratch`` has room for all of it. False for whatever is unusual."""
    cdef Text name
    if at == end or at[0] != 123 or not is_valid_text(at, end - at):
        return False
    at += 1
    while at < end and at[0] == 34:
        at = json_text(at + 1, end, &name, &scratch)
        if at == NULL or at == end or at[0] != 58:
            return False
        at = read_json_value(at + 1, end, &name, head, &scratch)
        if at == NULL or at == end:
            return False
        if at[0] == 125:
            while at + 1 < end and (end - 1)[0] == 10:
                end -= 1  # the line break behind a header of C++
            return at + 1 == end and head.keys & K_CODE != 0
        if at[0] != 44:
            return False
        at += 1
    return False


cdef bint read_binary_head(const unsigned char *at, const unsigned char *end, Head *head) noexcept nogil:
    """Read a binary header. False for whatever is unusual."""
    cdef Text remark, name, value
    if end - at < 21:
        return False
    head.code = get_i16(at)
    head.opaque = get_i32(at + 5)
    head.flag = get_i32(at + 9)
    at = binary_text(at + 13, end, 4, &remark)
    if at == NULL or end - at < 4 or get_i32(at) != end - at - 4:
        return False
    at += 4
    while at < end:
        at = binary_text(at, end, 2, &name)
        if at == NULL:
            return False
        at = binary_text(at, end, 4, &value)
        if at == NULL or not note_field(head, &name, &value):
            return False
    return True
