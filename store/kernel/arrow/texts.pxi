# --- texts of a row: properties with columns of their own, addresses, ids ---------------------------------------------

cdef extern from "<arpa/inet.h>" nogil:
    int AF_INET, AF_INET6
    const char *inet_ntop(int family, const void *address, char *text, uint32_t size)

cdef extern from "<stdio.h>" nogil:
    int snprintf(char *text, size_t size, const char *template, ...)

cdef struct Address:  # the last address of a column: the next one is nearly always the same
    unsigned char bytes[20]
    int size                    # of the bytes; 0 before the first
    char text[64]
    Py_ssize_t text_size


cdef struct Named:  # properties with columns of their own; NULL for a property that a record lacks
    const unsigned char *key
    const unsigned char *tags
    const unsigned char *unique
    Py_ssize_t key_size
    Py_ssize_t tags_size
    Py_ssize_t unique_size


cdef void find_named(const unsigned char *at, Py_ssize_t size, Named *named) noexcept nogil:
    """Find the properties with columns of their own in one pass; the first of a name counts, as in find_property."""
    cdef const unsigned char *end = at + size
    cdef const unsigned char *stop
    memset(named, 0, sizeof(Named))
    while at < end:
        stop = <const unsigned char *>memchr(at, 2, end - at)
        if stop == NULL:
            stop = end
        if named.key == NULL and is_pair_of(at, stop - at, N_KEYS):
            named.key = at + N_KEYS.size + 1
            named.key_size = stop - named.key
        elif named.tags == NULL and is_pair_of(at, stop - at, N_TAGS):
            named.tags = at + N_TAGS.size + 1
            named.tags_size = stop - named.tags
        elif named.unique == NULL and is_pair_of(at, stop - at, N_UNIQ_KEY):
            named.unique = at + N_UNIQ_KEY.size + 1
            named.unique_size = stop - named.unique
        at = stop + 1


cdef bint is_set_later(const unsigned char *name, Py_ssize_t size, const unsigned char *at,
                       const unsigned char *end) noexcept nogil:
    """Whether a later property of the same name has a value."""
    cdef Py_ssize_t value_size = 0
    while at < end:
        at = find_property(at, end - at, name_of(<const char *>name, size), &value_size)
        if at == NULL:
            return False
        if value_size:
            return True
    return False


cdef void write_address(Address *address, const unsigned char *at, bint is_v6) noexcept nogil:
    """Set ``address`` to the address at ``at``, with its text ``ip:port``."""
    cdef int size = 20 if is_v6 else 8
    if address.size == size and memcmp(address.bytes, at, size) == 0:
        return
    address.size = size
    memcpy(address.bytes, at, size)
    inet_ntop(AF_INET6 if is_v6 else AF_INET, at, address.text, sizeof(address.text))
    address.text_size = strlen(address.text)
    address.text_size += snprintf(
        address.text + address.text_size, sizeof(address.text) - address.text_size, b":%d", get_i32(at + size - 4))


cdef Py_ssize_t offset_id_text(const unsigned char *record, int host_at, bint is_v6, char *text) noexcept nogil:
    """Write the offset message id: hexadecimal digits of the store's address and the commit log offset."""
    cdef int host_size = 20 if is_v6 else 8
    cdef int number
    cdef unsigned char byte
    for number in range(host_size + 8):
        byte = record[host_at + number] if number < host_size else record[R_COMMIT_LOG_OFFSET + number - host_size]
        text[2 * number] = HEX[byte >> 4]
        text[2 * number + 1] = HEX[byte & 15]
    return 2 * (host_size + 8)
