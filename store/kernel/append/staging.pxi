# --- staging: records in memory of their own, before they go into the log ---------------------------------------------

@cython.final
cdef class _Staging:
    """The section of one append, and the memory of its records. The appender keeps it for the next append."""

    cdef Section section
    cdef Py_ssize_t capacity            # bytes of ``section.staged``
    cdef Py_ssize_t properties_at       # where the properties of the last record begin in it
    cdef int room                       # records of ``section.sizes`` and ``section.tags_codes``

    def __dealloc__(self):
        free(self.section.staged)
        free(self.section.sizes)
        free(self.section.tags_codes)

    cdef int begin(self, int count) except -1:
        """Forget the last append, and make room to note ``count`` records."""
        memset(&self.section.plan, 0, sizeof(Plan))
        self.section.plan.other_queue = NO_QUEUE
        self.section.now = wall_clock_ms()
        if count > self.room:
            self.make_room(count)
        return 0

    cdef int make_room(self, int count) except -1:
        cdef void *sizes = realloc(self.section.sizes, count * sizeof(int32_t))
        cdef void *codes = NULL
        if sizes != NULL:
            self.section.sizes = <int32_t *>sizes
            codes = realloc(self.section.tags_codes, count * sizeof(int64_t))
        if codes == NULL:
            raise MemoryError()
        self.section.tags_codes = <int64_t *>codes
        self.room = count
        return 0

    cdef unsigned char *reserve(self, Py_ssize_t more) except NULL:
        """Make room for ``more`` bytes behind the staged records; return where they begin."""
        cdef Py_ssize_t needed = <Py_ssize_t>self.section.plan.size + more
        cdef void *grown
        if needed > self.capacity:
            needed = max(2 * self.capacity, needed)
            grown = realloc(self.section.staged, needed)
            if grown == NULL:
                raise MemoryError()
            self.section.staged = <unsigned char *>grown
            self.capacity = needed
        return self.last()

    cdef inline unsigned char *last(self) noexcept:
        """The record that is being staged, behind those that are."""
        return self.section.staged + self.section.plan.size

    cdef void note(self, int32_t size, int64_t tags_code) noexcept:
        """Count the record at :meth:`last` as staged."""
        cdef Plan *plan = &self.section.plan
        self.section.sizes[plan.count] = size
        self.section.tags_codes[plan.count] = tags_code
        plan.count += 1
        plan.size += size

    cdef unsigned char *take_back(self) noexcept:
        """Forget the record that was staged last, whose bytes stay; return where it begins."""
        cdef Plan *plan = &self.section.plan
        plan.count -= 1
        plan.size -= self.section.sizes[plan.count]
        return self.last()
