# --- skipping: messages that the tags cannot match are finished without being read ------------------------------------

cdef enum:
    ENTRIES_AT_ONCE = 16
    BRIEFLY = 1                 # slices that are skipped while the GIL is held, which takes some microseconds
    AT_LENGTH = 1 << 20         # slices without the GIL


cdef struct Skip:  # a run of entries of one file, whose tags are compared with those wanted
    unsigned char *shared
    unsigned char *slot
    const Owner *me
    uint64_t epoch
    const unsigned char *entry          # of the first offset
    const int32_t *codes
    int code_count
    uint64_t log_begin
    uint64_t offset                     # everything below is finished
    uint64_t end
    uint64_t span


cdef bint is_any_wanted(const Skip *skip, const unsigned char *entry, int count) noexcept nogil:
    """Whether an entry of some has a wanted tag or a removed record. Looks at all of them: branches would cost more."""
    cdef bint found = False
    cdef int number, code
    for code in range(skip.code_count):
        for number in range(count):
            found |= get_i32(entry + number * CONSUME_QUEUE_ENTRY_SIZE + E_TAGS_CODE + 4) == skip.codes[code]
    if skip.log_begin:
        for number in range(count):
            found |= <uint64_t>get_i64(entry + number * CONSUME_QUEUE_ENTRY_SIZE) < skip.log_begin
    return found


cdef uint64_t first_wanted(const Skip *skip, uint64_t end) noexcept nogil:
    """The first offset below ``end`` that may be wanted or whose record is removed.

    ``end`` if there is no such offset.
    """
    cdef const unsigned char *entry = skip.entry
    cdef uint64_t left = end - skip.offset
    while left >= ENTRIES_AT_ONCE and not is_any_wanted(skip, entry, ENTRIES_AT_ONCE):
        entry += ENTRIES_AT_ONCE * CONSUME_QUEUE_ENTRY_SIZE
        left -= ENTRIES_AT_ONCE
    while left > 0 and not is_any_wanted(skip, entry, 1):
        entry += CONSUME_QUEUE_ENTRY_SIZE
        left -= 1
    return end - left


cdef int skip_unwanted(Skip *skip, int slices, int64_t timeout_ns) noexcept nogil:
    """Finish unwanted messages from ``skip.offset`` on, and move it behind them: one slice for each time in the mutex.

    Returns 0, an errno of the mutex, EBUSY when the mutex is not free and there is no time to wait, or ESTALE when the
    epoch is old.
    """
    cdef uint64_t end, wanted
    cdef int failure, outcome
    while slices > 0 and skip.offset < skip.end:
        slices -= 1
        end = min(skip.end, load64(skip.slot + G_COMMITTED_OFFSET) + skip.span)
        if end <= skip.offset:
            return 0
        wanted = first_wanted(skip, end)
        if wanted == skip.offset or load64(skip.shared + H_MIN_OFFSET) != skip.log_begin:
            return 0  # a file that retention removes while it is read looks like zeros
        if timeout_ns:
            failure = mutex_wait(skip.slot + G_MUTEX, skip.me, timeout_ns)
        else:
            failure = mutex_try(skip.slot + G_MUTEX, skip.me, 30)
        if failure:
            return failure
        settle_dead(skip.slot)
        outcome = skip_section(skip.slot, skip.epoch, skip.offset, wanted)
        mutex_release(skip.slot + G_MUTEX, skip.me)
        if outcome != 1:
            return ESTALE
        reach_point(AT_ACK_FINISHED)
        skip.entry += (wanted - skip.offset) * CONSUME_QUEUE_ENTRY_SIZE
        skip.offset = wanted
        if wanted < end:
            return 0
    return 0
