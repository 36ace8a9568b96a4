# --- acknowledgement: committed offset and bitmap, under the mutex of a group-queue -------------------------------

cdef void settle_advance(unsigned char *slot) noexcept nogil:
    """Finish moving ``committed_offset``: clear the bits it passes, then move it. Doing it twice is doing it once."""
    cdef uint64_t target = load64(slot + G_ADVANCE_TO)
    cdef uint64_t offset = max(load64(slot + G_COMMITTED), target - min(target, <uint64_t>ACK_WINDOW))
    cdef unsigned char *word
    cdef uint64_t bits
    while offset < target:
        word = word_of(slot, offset)
        bits = bits_in_word(&offset, target)
        store64(word, load64(word) & ~bits)
    reach_point(AT_ACK_CLEARED)
    if load64(slot + G_HELD_OFFSET) <= target:
        store64(slot + G_HELD_OFFSET, 0)
    store64(slot + G_COMMITTED, target)


cdef unsigned char *word_of(const unsigned char *slot, uint64_t offset) noexcept nogil:
    """The word of the bitmap that holds the bit of an offset."""
    return <unsigned char *>slot + G_ACKNOWLEDGED + offset % ACK_WINDOW // 64 * 8


cdef uint64_t bits_in_word(uint64_t *offset, uint64_t end) noexcept nogil:
    """The bits that ``[offset, end)``, which is not empty, has in the word of ``offset``; moves it behind them."""
    cdef uint64_t first = offset[0] % 64
    cdef uint64_t count = min(64 - first, end - offset[0])
    offset[0] += count
    return ~<uint64_t>0 >> (64 - count) << first


cdef bint is_acknowledged(const unsigned char *slot, uint64_t offset) noexcept nogil:
    return load64(word_of(slot, offset)) >> (offset % 64) & 1


cdef void settle_dead_advance(unsigned char *slot) noexcept nogil:
    """Finish a move that its owner died in the middle of."""
    if load64(slot + G_ADVANCE_TO) != load64(slot + G_COMMITTED):
        settle_advance(slot)


cdef void advance(unsigned char *slot, uint64_t committed) noexcept nogil:
    """Move ``committed_offset`` over what is finished without a gap."""
    cdef uint64_t target = committed
    cdef uint64_t unfinished = 0
    while target < committed + ACK_WINDOW and unfinished == 0:
        unfinished = ~load64(word_of(slot, target)) >> (target % 64)
        target += 64 - target % 64 if unfinished == 0 else lowest_bit(unfinished)
    target = min(target, committed + ACK_WINDOW)
    if target != committed:
        store64(slot + G_ADVANCE_TO, target)
        reach_point(AT_ACK_ADVANCING)
        settle_advance(slot)


cdef int acknowledge_section(unsigned char *slot, uint64_t epoch, const uint64_t *offsets, Py_ssize_t count) noexcept nogil:
    """Under the mutex of the group-queue. Returns 0 when the epoch is old, 1 when done, 2 for an offset beyond the window."""
    cdef uint64_t committed
    cdef unsigned char *word
    cdef Py_ssize_t number
    if load64(slot + G_EPOCH) != epoch:
        return 0
    settle_dead_advance(slot)
    reach_point(AT_ACK_LOCKED)
    committed = load64(slot + G_COMMITTED)
    for number in range(count):
        if offsets[number] < committed:
            continue
        if offsets[number] >= committed + ACK_WINDOW:
            return 2
        word = word_of(slot, offsets[number])
        store64(word, load64(word) | <uint64_t>1 << offsets[number] % 64)
    reach_point(AT_ACK_MARKED)
    advance(slot, committed)
    return 1


cdef int skip_section(unsigned char *slot, uint64_t epoch, uint64_t offset, uint64_t end) noexcept nogil:
    """Under the mutex of the group-queue: finish every message in ``[offset, end)``, as acknowledge_section does."""
    cdef uint64_t committed, bits
    cdef unsigned char *word
    if epoch != load64(slot + G_EPOCH):
        return 0
    settle_dead_advance(slot)
    reach_point(AT_ACK_LOCKED)
    committed = load64(slot + G_COMMITTED)
    if end > committed + ACK_WINDOW:
        return 2
    offset = max(offset, committed)
    while offset < end:
        word = word_of(slot, offset)
        bits = bits_in_word(&offset, end)
        store64(word, load64(word) | bits)
    reach_point(AT_ACK_MARKED)
    advance(slot, committed)
    return 1


cdef int expire_section(unsigned char *slot, uint64_t epoch, uint64_t low, uint64_t start, uint64_t *skipped) noexcept nogil:
    """Under the mutex of the group-queue: move ``committed_offset`` up to ``low``, below which messages were removed.

    Counts those from ``start`` on that were not finished. Returns 0 when the epoch is old, 1 when done.
    """
    cdef uint64_t committed, offset
    if epoch != load64(slot + G_EPOCH):
        return 0
    settle_dead_advance(slot)
    committed = load64(slot + G_COMMITTED)
    if committed >= low:
        return 1
    start = max(start, committed)
    if start < low:
        skipped[0] += low - start
    for offset in range(start, min(low, committed + ACK_WINDOW)):
        skipped[0] -= is_acknowledged(slot, offset)
    store64(slot + G_ADVANCE_TO, low)
    settle_advance(slot)
    return 1


cdef int lease_section(unsigned char *slot, uint64_t epoch, int64_t lease_until) noexcept nogil:
    """Under the mutex of the group-queue: move the end of the lease, or with 0 give the queue back.

    Returns 0 when the epoch is old, 1 when done.
    """
    if epoch != load64(slot + G_EPOCH):
        return 0
    if lease_until:
        store64(slot + G_LEASE_UNTIL, lease_until)
    else:
        store64(slot + G_OWNER, 0)
    return 1


cdef int begin_section(unsigned char *slot, uint64_t epoch, uint64_t offset, uint64_t number, int first) noexcept nogil:
    """Under the mutex of the group-queue: count a delivery attempt of the message that an ordered queue stands at.

    ``number`` is its place in its batch, 0 without one. Returns the attempt, ``first`` for a message that was not begun
    before; 0 when the epoch is old.
    """
    cdef uint64_t held = load64(slot + G_HELD_ATTEMPTS)
    cdef uint32_t attempts = <uint32_t>held
    if epoch != load64(slot + G_EPOCH):
        return 0
    if load64(slot + G_HELD_OFFSET) == offset + 1:
        if held >> 32 == number and attempts:
            first = <int>min(attempts, <uint32_t>MOST_ATTEMPTS) + 1
        store64(slot + G_HELD_ATTEMPTS, number << 32 | <uint64_t>first)
        return first
    store64(slot + G_HELD_OFFSET, 0)  # a death in between must not give this message the attempts of another one
    store64(slot + G_HELD_ATTEMPTS, number << 32 | <uint64_t>first)
    store64(slot + G_HELD_OFFSET, offset + 1)
    return first


cdef uint64_t held_number(const unsigned char *slot, uint64_t offset) noexcept nogil:
    """Below which number the messages of the batch at ``offset`` are finished, as far as it was noted."""
    return load64(slot + G_HELD_ATTEMPTS) >> 32 if load64(slot + G_HELD_OFFSET) == offset + 1 else 0


cdef int hold_section(unsigned char *slot, uint64_t epoch, uint64_t offset, const unsigned char *rest,
                      uint64_t count) noexcept nogil:
    """Under the mutex of the group-queue: note below which message of a batch all are finished, for the next owner.

    ``rest`` has a byte for each of the ``count`` messages. One batch of a queue is noted at a time, until the committed
    offset has passed it. Returns 0 when the epoch is old.
    """
    cdef uint64_t number = held_number(slot, offset)
    cdef uint64_t first = number
    if epoch != load64(slot + G_EPOCH):
        return 0
    if load64(slot + G_HELD_OFFSET) not in (0, offset + 1):
        return 1
    while number < count and rest[number] != UNFINISHED:
        number += 1
    if first < number < count:
        store64(slot + G_HELD_ATTEMPTS, number << 32)
        store64(slot + G_HELD_OFFSET, offset + 1)
    return 1


_GONE = object()
"""In the place of a message that retention has removed."""
