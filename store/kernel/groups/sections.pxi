# --- sections of a group-queue: what changes committed offset, bitmap and attempts under its mutex --------------------
# A section gets the slot and its own struct, and returns 0 and changes nothing when the epoch is old, else 1 or what it says.

ctypedef int (*SlotSection)(unsigned char *slot, void *what) noexcept nogil

cdef enum:  # why a message is finished: the word that counts it, and layout.COUNTED
    COUNT_HANDLED = 0
    COUNT_RETRIED = 1
    COUNT_DEAD_LETTERED = 2
    COUNT_SKIPPED = 3
    COUNT_LOST = 4
    COUNT_MOVED = 5             # the group is moved, and nothing is finished by that


cdef struct Marking:                # messages to acknowledge
    uint64_t epoch
    const uint64_t *offsets
    Py_ssize_t count
    int why                         # COUNT_HANDLED and so on


cdef struct Expiry:                 # messages that retention has removed
    uint64_t epoch
    uint64_t low                    # the oldest message that is there
    uint64_t start                  # from where on they are counted
    int why
    uint64_t count                  # result: those that were not finished


cdef struct Attempt:                # a delivery of the message that an ordered queue stands at
    uint64_t epoch
    uint64_t offset
    uint64_t number                 # of the message in its batch, 0 outside of one
    int first                       # attempt of a message that was not begun before


cdef struct Holding:                # a batch of which some messages are finished
    uint64_t epoch
    uint64_t offset
    const unsigned char *rest       # a byte for each message
    uint64_t count


cdef struct Lease:
    uint64_t epoch
    int64_t until                   # ns on CLOCK_BOOTTIME; 0 gives the queue back


cdef struct Lending:                # what a thread does for a call whose queue another member has got
    unsigned char *running          # its slot, and whose it must be
    uint64_t member
    uint64_t incarnation
    uint32_t group_queue
    SlotSection section             # with ``what``, whose first word is the epoch
    uint64_t *what


cdef struct Position:               # where a client says that it stands
    uint64_t epoch
    uint64_t offset


cdef inline int under_mutex(unsigned char *slot, const Owner *me, SlotSection section, void *what, int64_t timeout_ns,
                            int *outcome):
    """Run a section under the mutex of a group-queue: after a short try, or a wait without the GIL.

    Returns an errno.
    """
    cdef int failure = mutex_try(slot + G_MUTEX, me, 30)
    if failure == 0:
        settle_dead(slot)
        outcome[0] = section(slot, what)
        mutex_release(slot + G_MUTEX, me)
    elif failure == EBUSY:
        with nogil:
            failure = mutex_wait(slot + G_MUTEX, me, timeout_ns)
            if failure == 0:
                settle_dead(slot)
                outcome[0] = section(slot, what)
                mutex_release(slot + G_MUTEX, me)
    return failure


cdef inline void settle_dead(unsigned char *slot) noexcept nogil:
    """Finish what an owner left that died with the mutex: a move, and the count of what it marked.

    An unfinished seek settles both itself.
    """
    if load64(slot + G_ORPHANED) and load64(slot + G_SEEK_TO) == 0:
        settle_dead_advance(slot)
        count_marked(slot)
        store64(slot + G_ORPHANED, 0)


cdef unsigned char *counter_of(const unsigned char *slot, int why) noexcept nogil:
    """The word that counts messages that are finished for a reason, or the one that a move changes."""
    if why == COUNT_HANDLED:
        return <unsigned char *>slot + G_HANDLED
    if why == COUNT_MOVED:
        return <unsigned char *>slot + G_COUNTED_FROM
    return <unsigned char *>slot + G_RETRIED + 8 * (why - COUNT_RETRIED)


cdef inline void count_as(unsigned char *slot, int why) noexcept nogil:
    """Say why the messages are finished that are marked next: whoever settles a death counts them by it."""
    if why != COUNT_HANDLED:
        store64(slot + G_COUNTING, why)


cdef inline void count_up(unsigned char *slot, int why, uint64_t count) noexcept nogil:
    """Count messages that were marked."""
    cdef unsigned char *counter = counter_of(slot, why)
    store64(counter, load64(counter) + count)
    if why != COUNT_HANDLED:
        store64(slot + G_COUNTING, COUNT_HANDLED)


cdef void count_marked(unsigned char *slot) noexcept nogil:
    """Count what is marked and not counted, by the word that was announced. A second time changes nothing.

    The group has finished as many messages as lie below the committed offset and have a bit. So many must be counted.
    """
    cdef uint64_t finished = load64(slot + G_COMMITTED_OFFSET)
    cdef uint64_t counted = load64(slot + G_COUNTED_FROM)
    cdef int number
    for number in range(ACK_WINDOW // 64):
        finished += count_bits(load64(slot + G_ACKNOWLEDGED + number * 8))
    for number in range(COUNT_MOVED):
        counted += load64(counter_of(slot, number))
    count_up(slot, <int>load64(slot + G_COUNTING), finished - counted)


cdef void settle_advance(unsigned char *slot) noexcept nogil:
    """Finish moving ``committed_offset``: clear the bits it passes, then move it. A second time changes nothing."""
    cdef uint64_t target = load64(slot + G_ADVANCE_TO)
    cdef uint64_t offset = max(load64(slot + G_COMMITTED_OFFSET), target - min(target, <uint64_t>ACK_WINDOW))
    cdef unsigned char *word
    cdef uint64_t bits
    while offset < target:
        word = word_of(slot, offset)
        bits = bits_in_word(&offset, target)
        store64(word, load64(word) & ~bits)
    reach_point(AT_ACK_CLEARED)
    if load64(slot + G_HELD_OFFSET) <= target:
        store64(slot + G_HELD_OFFSET, 0)
    store64(slot + G_COMMITTED_OFFSET, target)


cdef unsigned char *word_of(const unsigned char *slot, uint64_t offset) noexcept nogil:
    """The word of the bitmap that holds the bit of an offset."""
    return <unsigned char *>slot + G_ACKNOWLEDGED + offset % ACK_WINDOW // 64 * 8


cdef uint64_t bits_in_word(uint64_t *offset, uint64_t end) noexcept nogil:
    """The bits of ``[offset, end)`` in the word of ``offset``; moves ``offset`` behind them. The range is not empty."""
    cdef uint64_t first = offset[0] % 64
    cdef uint64_t count = min(64 - first, end - offset[0])
    offset[0] += count
    return ~<uint64_t>0 >> (64 - count) << first


cdef bint is_acknowledged(const unsigned char *slot, uint64_t offset) noexcept nogil:
    return load64(word_of(slot, offset)) >> (offset % 64) & 1


cdef bint is_finished(const unsigned char *slot, uint64_t offset) noexcept nogil:
    # A bit is cleared when the committed offset is about to pass it, and advance_to says so before.
    return is_acknowledged(slot, offset) or offset < load64(slot + G_ADVANCE_TO)


cdef void settle_dead_advance(unsigned char *slot) noexcept nogil:
    """Finish a move whose owner died in the middle of it."""
    if load64(slot + G_ADVANCE_TO) != load64(slot + G_COMMITTED_OFFSET):
        settle_advance(slot)


cdef void advance(unsigned char *slot, uint64_t committed) noexcept nogil:
    """Move ``committed_offset`` to the first unfinished message."""
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


cdef int acknowledge_section(unsigned char *slot, void *what) noexcept nogil:
    """Acknowledge messages. Returns 2 for an offset beyond the window; the offsets before it are then marked."""
    cdef const Marking *marking = <Marking *>what
    cdef uint64_t committed, offset, bits
    cdef uint64_t marked = 0
    cdef unsigned char *word
    cdef Py_ssize_t number
    cdef int outcome = 1
    if load64(slot + G_EPOCH) != marking.epoch:
        return 0
    settle_dead_advance(slot)
    reach_point(AT_ACK_LOCKED)
    committed = load64(slot + G_COMMITTED_OFFSET)
    count_as(slot, marking.why)
    for number in range(marking.count):
        offset = marking.offsets[number]
        if offset < committed:
            continue
        if offset >= committed + ACK_WINDOW:
            outcome = 2
            break
        word = word_of(slot, offset)
        bits = load64(word)
        marked += ~bits >> offset % 64 & 1
        store64(word, bits | <uint64_t>1 << offset % 64)
    reach_point(AT_ACK_MARKED)
    count_up(slot, marking.why, marked)
    if outcome == 1:
        advance(slot, committed)
    return outcome


cdef int skip_section(unsigned char *slot, uint64_t epoch, uint64_t offset, uint64_t end) noexcept nogil:
    """Finish every message in ``[offset, end)``, as acknowledge_section does. The caller has the mutex."""
    cdef uint64_t committed, bits
    cdef uint64_t marked = 0
    cdef unsigned char *word
    if epoch != load64(slot + G_EPOCH):
        return 0
    settle_dead_advance(slot)
    reach_point(AT_ACK_LOCKED)
    committed = load64(slot + G_COMMITTED_OFFSET)
    if end > committed + ACK_WINDOW:
        return 2
    offset = max(offset, committed)
    count_as(slot, COUNT_SKIPPED)
    while offset < end:
        word = word_of(slot, offset)
        bits = bits_in_word(&offset, end)
        marked += count_bits(bits & ~load64(word))
        store64(word, load64(word) | bits)
    reach_point(AT_ACK_MARKED)
    count_up(slot, COUNT_SKIPPED, marked)
    advance(slot, committed)
    return 1


cdef int expire_section(unsigned char *slot, void *what) noexcept nogil:
    """Move ``committed_offset`` up to the oldest message that is there."""
    cdef Expiry *expiry = <Expiry *>what
    cdef uint64_t committed, offset, start
    if expiry.epoch != load64(slot + G_EPOCH):
        return 0
    settle_dead_advance(slot)
    committed = load64(slot + G_COMMITTED_OFFSET)
    if committed >= expiry.low:
        return 1
    start = max(expiry.start, committed)
    if start < expiry.low:
        expiry.count = expiry.low - start
    for offset in range(start, min(expiry.low, committed + ACK_WINDOW)):
        expiry.count -= is_acknowledged(slot, offset)
    count_as(slot, expiry.why)
    store64(slot + G_ADVANCE_TO, expiry.low)
    settle_advance(slot)
    count_marked(slot)
    return 1


cdef int lease_section(unsigned char *slot, void *what) noexcept nogil:
    """Move the end of the lease, or give the queue back."""
    cdef const Lease *lease = <Lease *>what
    if lease.epoch != load64(slot + G_EPOCH):
        return 0
    if lease.until:
        store64(slot + G_LEASE_UNTIL, lease.until)
    else:
        store64(slot + G_OWNER, 0)
    return 1


cdef bint is_lent(const unsigned char *slot, const Lending *lending) noexcept nogil:
    """Whether the owner of the queue leaves the messages of a call to the thread that runs it."""
    return (load64(lending.running + U_GRANT) == grant_word(lending.group_queue, load64(slot + G_EPOCH))
            and load64(lending.running + U_MEMBER) == lending.member
            and load64(lending.running + U_INCARNATION) == lending.incarnation)


cdef int lent_section(unsigned char *slot, void *what) noexcept nogil:
    """Run another section under the present epoch, if the owner of the queue has left the messages to this call."""
    cdef Lending *lending = <Lending *>what
    if not is_lent(slot, lending):
        return 0
    lending.what[0] = load64(slot + G_EPOCH)
    return lending.section(slot, lending.what)


cdef int begin_section(unsigned char *slot, void *what) noexcept nogil:
    """Count a delivery attempt, which outlives this process; return its number."""
    cdef const Attempt *attempt = <Attempt *>what
    cdef uint64_t held = load64(slot + G_HELD_ATTEMPTS)
    cdef uint32_t attempts = <uint32_t>held
    cdef int number = attempt.first
    if attempt.epoch != load64(slot + G_EPOCH):
        return 0
    if load64(slot + G_HELD_OFFSET) == attempt.offset + 1:
        if held >> 32 == attempt.number and attempts:
            number = <int>min(attempts, <uint32_t>MOST_ATTEMPTS) + 1
        store64(slot + G_HELD_ATTEMPTS, attempt.number << 32 | <uint64_t>number)
        return number
    store64(slot + G_HELD_OFFSET, 0)  # a death in between must not give this message the attempts of another one
    store64(slot + G_HELD_ATTEMPTS, attempt.number << 32 | <uint64_t>number)
    store64(slot + G_HELD_OFFSET, attempt.offset + 1)
    return number


cdef uint64_t held_number(const unsigned char *slot, uint64_t offset) noexcept nogil:
    """The number of the first unfinished message in the batch at ``offset``, as far as it was noted."""
    return load64(slot + G_HELD_ATTEMPTS) >> 32 if load64(slot + G_HELD_OFFSET) == offset + 1 else 0


cdef int hold_section(unsigned char *slot, void *what) noexcept nogil:
    """Note how many messages at the head of a batch are finished, for the next owner.

    A queue has one such note at a time, until the committed offset has passed its batch.
    """
    cdef const Holding *holding = <Holding *>what
    cdef uint64_t number = held_number(slot, holding.offset)
    cdef uint64_t first = number
    if holding.epoch != load64(slot + G_EPOCH):
        return 0
    if load64(slot + G_HELD_OFFSET) not in (0, holding.offset + 1):
        return 1
    while number < holding.count and holding.rest[number] != UNFINISHED:
        number += 1
    if first < number < holding.count:
        store64(slot + G_HELD_ATTEMPTS, number << 32)
        store64(slot + G_HELD_OFFSET, holding.offset + 1)
    return 1


cdef int commit_section(unsigned char *slot, void *what) noexcept nogil:
    """Move ``committed_offset`` to where a client stands, forwards or back. Returns 2 while a seek is unfinished.

    Each step is no longer than the bitmap, as with every other move. A death in between leaves the group at the old
    position, at the new one, or between them.
    """
    cdef const Position *position = <Position *>what
    cdef uint64_t committed
    if position.epoch != load64(slot + G_EPOCH):
        return 0
    if load64(slot + G_SEEK_TO):
        return 2
    settle_dead_advance(slot)
    reach_point(AT_ACK_LOCKED)
    committed = load64(slot + G_COMMITTED_OFFSET)
    if position.offset < committed:
        count_as(slot, COUNT_MOVED)
        move_back(slot, committed, position.offset)
        count_marked(slot)
        return 1
    while committed < position.offset:
        committed += min(position.offset - committed, <uint64_t>ACK_WINDOW)
        store64(slot + G_ADVANCE_TO, committed)
        reach_point(AT_ACK_ADVANCING)
        settle_advance(slot)
    count_marked(slot)
    advance(slot, committed)  # over what others have finished ahead of it
    return 1


cdef void move_back(unsigned char *slot, uint64_t committed, uint64_t target) noexcept nogil:
    """Forget what is finished ahead, then go back to ``target``. The next holder undoes a step that a death cut short."""
    memset(slot + G_ACKNOWLEDGED, 0, ACK_WINDOW // 8)
    store64(slot + G_HELD_OFFSET, 0)
    reach_point(AT_ACK_CLEARED)
    while committed > target:
        committed -= min(committed - target, <uint64_t>ACK_WINDOW)
        store64(slot + G_COMMITTED_OFFSET, committed)
        reach_point(AT_COMMIT_HALF_BACK)
        store64(slot + G_ADVANCE_TO, committed)


def settle_counters(Mapping shared not None, Py_ssize_t group_queue_at):
    if not 0 < group_queue_at <= shared.size - GROUP_QUEUE_SLOT_SIZE:
        raise ValueError(f"no slot at {group_queue_at}")
    settle_dead(shared.address + group_queue_at)


def commit_offset(Mapping shared not None, Py_ssize_t group_queue_at, Py_ssize_t queue_at, uint64_t epoch, uint64_t offset,
                  int64_t timeout_ms):
    cdef Position position
    cdef int outcome = 0
    cdef int failure
    if not 0 < group_queue_at <= shared.size - GROUP_QUEUE_SLOT_SIZE or not 0 < queue_at <= shared.size - Q_WAITING_LANES - 8:
        raise ValueError(f"no slots at {group_queue_at} and {queue_at}")
    if offset > load64(shared.address + queue_at + Q_MAX_OFFSET):
        raise OffsetOutOfRange(
            f"offset {offset}: a group stands at 0 to {load64(shared.address + queue_at + Q_MAX_OFFSET)}, where the queue ends")
    position.epoch = epoch
    position.offset = offset
    failure = under_mutex(shared.address + group_queue_at, shared.me, commit_section, &position, timeout_ms * 1000000, &outcome)
    if failure == ETIMEDOUT:
        raise StoreBusy(
            f"waited {timeout_ms} ms to commit an offset, held by process "
            f"{mutex_process(shared.address + group_queue_at + G_MUTEX)}")
    if failure:
        raise OSError(failure, os.strerror(failure))
    if outcome == 1:
        reach_point(AT_ACK_FINISHED)
    return outcome
