# --- given columns: the rows of a data frame, in Arrow's C data interface ---------------------------------------------

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
    const unsigned char *valid      # a bit for each value, 0 for null; NULL when no value is null
    const int32_t *ends
    const unsigned char *data
    int64_t first                   # position of row 0 in the column


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
    """The array in the second capsule that ``__arrow_c_array__`` returned."""
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


cdef struct Row:                    # what one row has; NULL and 0 for null and for columns that were not given
    const unsigned char *body
    const unsigned char *key
    const unsigned char *tags
    Py_ssize_t body_size
    Py_ssize_t key_size
    Py_ssize_t tags_size
    Py_ssize_t properties_size
    Py_ssize_t total                # bytes of the record
    int64_t born                    # ms since 1970; INT64_MIN: when it is appended
    bint is_chosen                  # its partition is
    bint sharded                    # its key chooses the queue


cdef int64_t born_at(const Numbers *numbers, int64_t row) noexcept nogil:
    """Born time of a row in ms, INT64_MIN when it is null or there is no such column."""
    cdef int64_t number = numbers.first + row
    cdef int64_t born
    if numbers.values == NULL or not is_set(numbers.valid, number):
        return INT64_MIN
    born = (<const int64_t *>numbers.values)[number]
    return born // 1000 - (1 if born % 1000 < 0 else 0)  # from microseconds; C rounds towards zero


cdef enum:  # what is wrong with a text
    IS_PLAIN = 0
    HAS_SEPARATOR = 1
    IS_NO_UTF8 = 2

cdef list RESERVED_NAMES = [name.encode() for name in sorted(RESERVED_PROPERTIES)]


cdef int problem_of(const unsigned char *at, Py_ssize_t size) noexcept nogil:
    cdef unsigned char seen = 0
    cdef Py_ssize_t number
    for number in range(size):
        if at[number] == 1 or at[number] == 2:
            return HAS_SEPARATOR
        seen |= at[number]
    return IS_PLAIN if seen < 0x80 or is_utf8(at, size) else IS_NO_UTF8


cdef bint is_reserved(const unsigned char *name, Py_ssize_t size) noexcept:
    cdef bytes reserved
    for reserved in RESERVED_NAMES:
        if PyBytes_GET_SIZE(reserved) == size and memcmp(PyBytes_AS_STRING(reserved), name, size) == 0:
            return True
    return False


cdef uint64_t mixed(uint64_t value) noexcept nogil:
    """Mix a number (splitmix64): every bit of the result depends on every bit of ``value``."""
    value += 0x9E3779B97F4A7C15ULL
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9ULL
    value = (value ^ value >> 27) * 0x94D049BB133111EBULL
    return value ^ value >> 31


cdef void put_row_key(unsigned char *at, int64_t row) noexcept nogil:
    """Write UNIQ_KEY with the number of the row in its second half, and zeros where the CRC goes."""
    memcpy(at, N_UNIQ_KEY.text, N_UNIQ_KEY.size)
    at[8] = 1
    memset(at + 9, 48, 16)
    put_hex(at + 25, <uint64_t>row, 16)
    at[41] = 2
    memset(at + UNIQUE_PROPERTY_SIZE, 0, CRC_PROPERTY_SIZE)
