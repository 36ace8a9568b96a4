# --- given columns: the rows of a data frame, in Arrow's C data interface -----------------------------------------------

from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT64_MIN

cdef extern from "Python.h":
    enum: PyBUF_READ


cdef struct ArrowColumn:            # struct ArrowArray of Arrow's C data interface
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void **buffers
    ArrowColumn **children
    ArrowColumn *dictionary
    void *release
    void *private_data


cdef struct Texts:                  # a column of strings or bytes with 32 bit offsets; ``ends`` is NULL without one
    const unsigned char *valid      # bits, NULL when nothing is null
    const int32_t *ends
    const unsigned char *data
    int64_t first                   # number of row 0 in them


cdef struct Numbers:                # a column of 32 or 64 bits
    const unsigned char *valid
    const void *values
    int64_t first


cdef struct Pairs:                  # a column of maps
    const unsigned char *valid
    const int32_t *ends
    int64_t first
    Texts names
    Texts values


cdef struct RowColumns:
    Texts value
    Texts key
    Texts topic
    Texts tags
    Numbers partition
    Numbers born
    Pairs properties


cdef ArrowColumn *arrow_column(object exported) except NULL:
    """The array that ``__arrow_c_array__`` gave, in the second of its capsules."""
    return <ArrowColumn *>PyCapsule_GetPointer(exported[1], b"arrow_array")


cdef void point_texts(Texts *texts, ArrowColumn *column, int64_t more) noexcept:
    texts.valid = <const unsigned char *>column.buffers[0] if column.null_count else NULL
    texts.ends = <const int32_t *>column.buffers[1]
    texts.data = <const unsigned char *>column.buffers[2]
    texts.first = column.offset + more


cdef void point_numbers(Numbers *numbers, ArrowColumn *column) noexcept:
    numbers.valid = <const unsigned char *>column.buffers[0] if column.null_count else NULL
    numbers.values = column.buffers[1]
    numbers.first = column.offset


cdef void point_pairs(Pairs *pairs, ArrowColumn *column) noexcept:
    cdef ArrowColumn *entries = column.children[0]
    pairs.valid = <const unsigned char *>column.buffers[0] if column.null_count else NULL
    pairs.ends = <const int32_t *>column.buffers[1]
    pairs.first = column.offset
    point_texts(&pairs.names, entries.children[0], entries.offset)
    point_texts(&pairs.values, entries.children[1], entries.offset)


cdef inline bint is_set(const unsigned char *valid, int64_t number) noexcept nogil:
    return valid == NULL or valid[number >> 3] >> (number & 7) & 1


cdef const unsigned char *text_at(const Texts *texts, int64_t row, Py_ssize_t *size) noexcept nogil:
    """The text of a row; NULL when it is null or there is no such column."""
    cdef int64_t number = texts.first + row
    size[0] = 0
    if texts.ends == NULL or not is_set(texts.valid, number):
        return NULL
    size[0] = texts.ends[number + 1] - texts.ends[number]
    return <const unsigned char *>b"" if texts.data == NULL else texts.data + texts.ends[number]
