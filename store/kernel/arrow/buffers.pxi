# --- buffers: the memory of Arrow arrays ------------------------------------------------------------------------------
# An Arrow array is values of one width; or, for text and bytes, offsets of 32 bits, one more than there are values, and the
# data that they point into. A column with nulls has a bitmap, too, with a bit for each value that is not null.

cdef struct Column:
    bint is_wanted
    int width                   # bytes of a value, 4 of an offset
    bint has_data               # that offsets point into
    bint has_nulls
    unsigned char *values       # or offsets
    Py_ssize_t values_room
    unsigned char *data
    Py_ssize_t used
    Py_ssize_t room
    unsigned char *validity
    Py_ssize_t nulls


@cython.final
cdef class ColumnBuffer:
    """Bytes of an Arrow array, read-only."""

    cdef unsigned char *at
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.at, self.size, 1, flags)

    def __len__(self):
        return self.size

    def __dealloc__(self):
        free(self.at)


cdef ColumnBuffer handed_over(unsigned char **at, Py_ssize_t size):
    cdef ColumnBuffer buffer = ColumnBuffer.__new__(ColumnBuffer)
    buffer.at = at[0]
    buffer.size = size
    at[0] = NULL
    return buffer


cdef bint reserve(unsigned char **at, Py_ssize_t *room, Py_ssize_t needed) noexcept nogil:
    """Make room for so many bytes. False when there is no memory."""
    cdef Py_ssize_t larger = max(needed, 2 * room[0])
    cdef unsigned char *moved
    if needed <= room[0]:
        return True
    moved = <unsigned char *>realloc(at[0], larger)
    if moved == NULL:
        return False
    at[0] = moved
    room[0] = larger
    return True
