# --- text: Java hashes, digits and hexadecimal digits -----------------------------------------------------------------

cdef int32_t hash_utf8(const unsigned char *at, Py_ssize_t size, uint32_t value=0) noexcept nogil:
    """Java's ``String.hashCode``: over UTF-16 units, so a character beyond U+FFFF counts as two.

    ``value`` is the hash of the text before.
    """
    cdef uint32_t unit
    cdef const unsigned char *end = at + size
    while at < end:
        if at[0] < 0x80:
            unit = at[0]
            at += 1
        elif at[0] < 0xE0 and at + 1 < end:
            unit = (at[0] & 0x1F) << 6 | (at[1] & 0x3F)
            at += 2
        elif at[0] < 0xF0 and at + 2 < end:
            unit = (at[0] & 0x0F) << 12 | (at[1] & 0x3F) << 6 | (at[2] & 0x3F)
            at += 3
        elif at + 3 < end:
            unit = ((at[0] & 0x07) << 18 | (at[1] & 0x3F) << 12 | (at[2] & 0x3F) << 6 | (at[3] & 0x3F)) - 0x10000
            value = 31 * value + (0xD800 | (unit >> 10))
            unit = 0xDC00 | (unit & 0x3FF)
            at += 4
        else:
            break
        value = 31 * value + unit
    return <int32_t>value


def java_hash(str text not None):
    cdef Py_ssize_t size = 0
    cdef const char *at = PyUnicode_AsUTF8AndSize(text, &size)
    return hash_utf8(<const unsigned char *>at, size)


cdef inline bint is_digit(unsigned char byte) noexcept nogil:
    return 48 <= byte <= 57


cdef void put_hex(unsigned char *at, uint64_t value, int digits) noexcept nogil:
    cdef int digit
    for digit in range(digits - 1, -1, -1):
        at[digit] = HEX[value & 15]
        value >>= 4


cdef uint64_t hex_value(const unsigned char *at, bint *is_hex) noexcept nogil:
    """The number of 16 upper-case hexadecimal digits."""
    cdef uint64_t value = 0
    cdef int digit
    cdef unsigned char byte
    for digit in range(16):
        byte = at[digit]
        if is_digit(byte):
            value = value << 4 | <uint64_t>(byte - 48)
        elif 65 <= byte <= 70:
            value = value << 4 | <uint64_t>(byte - 55)
        else:
            is_hex[0] = False
            return 0
    is_hex[0] = True
    return value
