# --- texts of a header: what JSON and the binary header hold, without a copy where none is needed ---------------------
# Every function here gives NULL or False for whatever is unusual: Python then reads the frame, and decides.

cdef struct Text:
    const unsigned char *at
    Py_ssize_t size


cdef enum:
    MOST_DIGITS = 18
    MOST_HEADER_BYTES = 1 << 16


cdef inline bint is_text(const Text *text, const char *other, Py_ssize_t size) noexcept nogil:
    return text.size == size and memcmp(text.at, other, size) == 0


cdef bint is_valid_text(const unsigned char *at, Py_ssize_t size) noexcept nogil:
    """Whether the bytes are UTF-8. Most are ASCII, of which eight are looked at in one step."""
    cdef Py_ssize_t position = 0
    while position + 8 <= size and get_i64(at + position) & <int64_t>0x8080808080808080ULL == 0:
        position += 8
    return is_utf8(at + position, size - position)


cdef bint number_of_text(const Text *text, int64_t *number) noexcept nogil:
    """Read decimal digits, perhaps behind a minus. False for anything else."""
    cdef bint is_negative = text.size > 0 and text.at[0] == 45
    cdef Py_ssize_t position = is_negative
    if not 0 < text.size - position <= MOST_DIGITS:
        return False
    number[0] = 0
    while position < text.size:
        if not is_digit(text.at[position]):
            return False
        number[0] = number[0] * 10 + text.at[position] - 48
        position += 1
    if is_negative:
        number[0] = -number[0]
    return True


cdef bint int32_of_text(const Text *text, int32_t *number) noexcept nogil:
    cdef int64_t wide = 0
    if not number_of_text(text, &wide) or not -0x80000000LL <= wide <= 0x7FFFFFFFLL:
        return False
    number[0] = <int32_t>wide
    return True


cdef const unsigned char *json_number(const unsigned char *at, const unsigned char *end, Text *text) noexcept nogil:
    """Find the whole number of JSON at ``at``; return where it ends."""
    text.at = at
    if at < end and at[0] == 45:
        at += 1
    if at == end or not is_digit(at[0]) or at[0] == 48 and at + 1 < end and is_digit(at[1]):
        return NULL
    while at < end and is_digit(at[0]):
        at += 1
    text.size = at - text.at
    if at == end or at[0] != 44 and at[0] != 125:
        return NULL  # no comma, no brace: a fraction
    return at


cdef const unsigned char *json_word(const unsigned char *at, const unsigned char *end, Text *text) noexcept nogil:
    """Find the number or the truth of JSON at ``at``, which C++ and Node write for a text; return where it ends."""
    text.at = at
    if end - at > 4 and memcmp(at, b"true", 4) == 0:
        text.size = 4
    elif end - at > 5 and memcmp(at, b"false", 5) == 0:
        text.size = 5
    else:
        return json_number(at, end, text)
    return at + text.size


cdef const unsigned char *json_text(const unsigned char *at, const unsigned char *end, Text *text,
                                    unsigned char **scratch) noexcept nogil:
    """Find the text of JSON whose first quote is before ``at``; return where it ends, behind its last quote.

    A text with escapes is written to ``scratch``, which has room for the whole header, and moves on.
    """
    cdef unsigned char *out
    cdef int escaped
    text.at = at
    while at < end and at[0] != 34 and at[0] != 92 and at[0] >= 32:
        at += 1
    text.size = at - text.at
    if at < end and at[0] == 34:
        return at + 1
    memcpy(scratch[0], text.at, text.size)
    out = scratch[0] + text.size
    text.at = scratch[0]
    while at < end and at[0] != 34:
        if at[0] < 32:
            return NULL
        if at[0] == 92:
            escaped = json_escape(&at, end)
            if escaped < 0:
                return NULL
            out[0] = <unsigned char>escaped
        else:
            out[0] = at[0]
            at += 1
        out += 1
    text.size = out - text.at
    scratch[0] = out
    return at + 1 if at < end else NULL


cdef int json_escape(const unsigned char **at, const unsigned char *end) noexcept nogil:
    """Read an escape of JSON that stands for an ASCII character, and move behind it; -1 for another one."""
    cdef const unsigned char *escape = at[0] + 1
    cdef int value = 0, digit
    if escape >= end:
        return -1
    at[0] += 2
    if escape[0] == 34 or escape[0] == 92 or escape[0] == 47:
        return escape[0]
    if escape[0] == 98:
        return 8
    if escape[0] == 102:
        return 12
    if escape[0] == 110:
        return 10
    if escape[0] == 114:
        return 13
    if escape[0] == 116:
        return 9
    if escape[0] != 117 or end - escape < 5 or escape[1] != 48 or escape[2] != 48:
        return -1
    at[0] += 4
    for digit in range(3, 5):
        value *= 16
        if is_digit(escape[digit]):
            value += escape[digit] - 48
        elif 97 <= escape[digit] | 32 <= 102:
            value += (escape[digit] | 32) - 87
        else:
            return -1
    return value if value < 128 else -1


cdef const unsigned char *binary_text(const unsigned char *at, const unsigned char *end, int length_bytes,
                                      Text *text) noexcept nogil:
    """Find the text behind its length of 2 or 4 bytes; return where it ends."""
    if end - at < length_bytes:
        return NULL
    text.size = get_i16(at) if length_bytes == 2 else get_i32(at)
    text.at = at + length_bytes
    if text.size < 0 or text.size > end - text.at:
        return NULL
    return text.at + text.size if is_valid_text(text.at, text.size) else NULL
