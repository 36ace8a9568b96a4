# --- tags: which messages a group wants -------------------------------------------------------------------------------

@cython.final
cdef class TagSet:
    """Tags to deliver: hashes to compare with an entry, bytes to compare with a record. An empty set takes every message.

    ``passes``, if it is not None, is called with each message whose tag matches.
    """

    cdef frozenset tags
    cdef object passes
    cdef int32_t *codes
    cdef int count

    def __cinit__(self, tags, passes=None):
        cdef int number
        self.passes = passes
        self.tags = frozenset([tag.encode() for tag in tags])
        self.count = <int>len(self.tags)
        self.codes = <int32_t *>malloc(max(1, self.count) * sizeof(int32_t))
        if self.codes == NULL:
            raise MemoryError()
        for number, tag in enumerate(self.tags):
            self.codes[number] = hash_utf8(<const unsigned char *>PyBytes_AS_STRING(tag), PyBytes_GET_SIZE(tag))

    def __dealloc__(self):
        free(self.codes)

    cdef bint may_match(self, int64_t code) noexcept nogil:
        cdef int number
        if self.count == 0:
            return True
        for number in range(self.count):
            if self.codes[number] == <int32_t>code:
                return True
        return False

    cdef bint matches(self, const unsigned char *record, Frame *frame):
        cdef Py_ssize_t size = 0
        cdef const unsigned char *value
        if self.count == 0:
            return True
        value = find_property(record + frame.properties_at, frame.properties_size, N_TAGS, &size)
        return value != NULL and PyBytes_FromStringAndSize(<char *>value, size) in self.tags
