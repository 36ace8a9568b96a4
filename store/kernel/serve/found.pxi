# --- found: answers to pulls that found messages, as they stand in the buffer of a client -----------------------------

cdef enum:
    MOST_FOUND_HEADER = 2048      # a longer one is read by Python
    K_FOLLOWING = 32              # a key beside those of K_FIELDS and the others


cdef struct FoundHead:            # what is looked at; all zeros before it is read
    int32_t code
    int32_t flag
    int32_t opaque
    int64_t following             # nextBeginOffset
    int keys                      # that were met, as bits


cdef const unsigned char *read_found_fields(const unsigned char *at, const unsigned char *end, FoundHead *head,
                                            unsigned char **scratch) noexcept nogil:
    """Read the object behind the brace before ``at``; return where it ends."""
    cdef Text name, value
    while at < end and at[0] == 34:
        at = json_text(at + 1, end, &name, scratch)
        if at == NULL or end - at < 2 or at[0] != 58:
            return NULL
        at = json_text(at + 2, end, &value, scratch) if at[1] == 34 else json_word(at + 1, end, &value)
        if at == NULL or at == end:
            return NULL
        if is_text(&name, "nextBeginOffset", 15):
            if head.keys & K_FOLLOWING or not number_of_text(&value, &head.following):
                return NULL
            head.keys |= K_FOLLOWING
        if at[0] == 125:
            return at + 1
        if at[0] != 44:
            return NULL
        at += 1
    return NULL


cdef const unsigned char *read_found_value(const unsigned char *at, const unsigned char *end, const Text *name,
                                           FoundHead *head, unsigned char **scratch) noexcept nogil:
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
        return read_found_fields(at + 1, end, head, scratch) if at < end and at[0] == 123 else NULL
    if key:
        at = json_number(at, end, &value)
        return at if at != NULL and int32_of_text(&value, number) else NULL
    return json_text(at + 1, end, &value, scratch) if at < end and at[0] == 34 else NULL


cdef bint read_found_head(const unsigned char *at, const unsigned char *end, FoundHead *head) noexcept nogil:
    """Read the header of an answer that found messages. False for every other one, and for whatever is unusual."""
    cdef unsigned char[MOST_FOUND_HEADER] room
    cdef unsigned char *scratch = room
    cdef Text name
    if at == end or at[0] != 123 or end - at > MOST_FOUND_HEADER or not is_valid_text(at, end - at):
        return False
    at += 1
    while at < end and at[0] == 34:
        at = json_text(at + 1, end, &name, &scratch)
        if at == NULL or at == end or at[0] != 58:
            return False
        at = read_found_value(at + 1, end, &name, head, &scratch)
        if at == NULL or at == end:
            return False
        if at[0] == 125:
            return (at + 1 == end and head.code == 0 and head.flag & FLAG_RESPONSE
                    and head.keys & (K_CODE | K_OPAQUE | K_FOLLOWING) == K_CODE | K_OPAQUE | K_FOLLOWING)
        if at[0] != 44:
            return False
        at += 1
    return False


def found_in(data not None, Py_ssize_t at, Py_ssize_t end):
    cdef Py_buffer view
    cdef const unsigned char *bytes_at
    cdef Py_ssize_t total, header
    cdef FoundHead head
    cdef list answers = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= end <= view.len:
            raise ValueError(f"bytes {at} to {end} are not in a buffer of {view.len}")
        while end - at >= 8:
            bytes_at = <const unsigned char *>view.buf + at
            total = get_i32(bytes_at)
            header = get_i32(bytes_at + 4)        # with the serialization above it: 0, JSON
            if not 4 <= total <= end - at - 4 or not 0 <= header <= total - 4:
                break
            memset(&head, 0, sizeof(FoundHead))
            if not read_found_head(bytes_at + 8, bytes_at + 8 + header, &head):
                break
            answers.append((head.opaque, head.following, data[at + 8 + header:at + 4 + total]))
            at += 4 + total
    finally:
        PyBuffer_Release(&view)
    return answers, at
