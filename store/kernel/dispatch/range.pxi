# --- a range of one commit log file -----------------------------------------------------------------------------------

@cython.final
cdef class _Range:
    """A part of one commit log file: ``buffer`` holds the bytes of the file from its begin."""

    cdef Py_buffer view
    cdef int64_t base
    cdef int64_t stop

    def __cinit__(self, buffer, int64_t base, int64_t start, int64_t stop):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        if not base <= start <= base + self.view.len:
            raise ValueError(f"offset {start} is not inside the {self.view.len} bytes from {base} on")
        self.base = base
        self.stop = min(stop, base + self.view.len)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    cdef int use(self, int64_t size) except -1:
        """Count a touch of ``size`` bytes, if the buffer is a mapping."""
        cdef object owner = <object>self.view.obj
        return use(<Mapping>owner, max(0, size)) if isinstance(owner, Mapping) else 0

    cdef const unsigned char *at(self, int64_t offset) noexcept nogil:
        return <const unsigned char *>self.view.buf + (offset - self.base)

    cdef Py_ssize_t left(self, int64_t offset) noexcept nogil:
        return self.view.len - (offset - self.base)
