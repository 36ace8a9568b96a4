# --- the append section: what happens under the append mutex ----------------------------------------------------------

cdef enum:  # what a section asks for before it can go on
    DONE = 0
    NEED_LOG_FILE = 1
    NEED_QUEUE_FILE = 2
    NEED_REPAIR = 3
    POISONED = 4
    DISK_FULL = 5
    OUTDATED = 6
    NEED_OTHER_QUEUE_FILE = 7
    TIMER_FULL = 8
    RESTRICTED = 9
    NO_ROOM = 10

cdef enum:
    GUARDS = 2

cdef struct Plan:                   # what one append is to do, decided before the mutex; all zeros for a plain append
    uint64_t size                   # bytes of the staged records
    int count                       # of them
    int64_t delay_ms                # of the level in which the records wait; 0: they do not
    uint64_t progress_at            # byte of a word that this append moves from progress_from to the next number; 0: no word
    uint64_t progress_from
    uint64_t done_at                # byte of a word of the timer's bits in which this append sets done_bit; 0: no bit
    uint64_t done_bit
    uint64_t done_offset            # queue offset of the message that is then done
    uint64_t timer_room             # refuse the append if more messages of the timer would be pending; 0: not for the timer
    bint makes_room                 # append even if the disk is too full for others
    uint64_t guard_at[GUARDS]       # bytes of words, 0 for no word: append nothing unless each word has its value
    uint64_t guard_value[GUARDS]
    uint64_t admitted               # bits of RESTRICTED under which this append was found to be allowed
    int replicated                  # what became of its copies: see SendResult.replicated
    int other_queue                 # slot of the queue that the last record goes to, and not to that of the others; or NO_QUEUE


cdef enum:
    NO_QUEUE = -1


cdef struct Section:
    Plan plan
    unsigned char *staged           # whole records but for offsets, store timestamp and CRC
    int32_t *sizes                  # of each record
    int64_t *tags_codes
    int64_t now                     # ms since 1970
    unsigned char *shared           # the runtime file
    const Owner *me                 # who locks its mutexes
    unsigned char *slot             # of the queue
    unsigned char *log[2]           # the file that holds published_to, and the next file
    uint64_t log_base[2]
    uint64_t log_file_bytes
    unsigned char *entries[2]       # consume queue files
    uint64_t first_entry[2]
    uint64_t room[2]                # entries of each that have blocks, all of the first if there is a second: a store behind
                                    # them would end the process on a full disk
    unsigned char *timer            # its table in the runtime file
    unsigned char *other_slot       # of plan.other_queue, or NULL
    unsigned char *other_entries
    uint64_t other_first_entry
    uint64_t other_room
    uint64_t other_queue_offset
    uint64_t commit_log_offset      # results, of the first record
    uint64_t queue_offset
    uint64_t lanes                  # with sleepers to wake
    int rolled                      # the records went into a new file


cdef unsigned char *entry_at(Section *section, uint64_t number) noexcept nogil:
    cdef int file
    for file in range(2):
        if section.entries[file] != NULL and 0 <= <int64_t>(number - section.first_entry[file]) < <int64_t>section.room[file]:
            return section.entries[file] + (number - section.first_entry[file]) * CONSUME_QUEUE_ENTRY_SIZE
    return NULL


cdef unsigned char *entry_of(Section *section, int number) noexcept nogil:
    """Where the entry of a record goes; NULL when its file is not mapped."""
    if section.other_slot == NULL or number < section.plan.count - 1:
        return entry_at(section, section.queue_offset + number)
    if section.other_entries == NULL or section.other_queue_offset - section.other_first_entry >= section.other_room:
        return NULL
    return section.other_entries + (section.other_queue_offset - section.other_first_entry) * CONSUME_QUEUE_ENTRY_SIZE


cdef bint guarded(Section *section) noexcept nogil:
    """Whether every guarded word is as it was when the append was decided on."""
    cdef int number
    for number in range(GUARDS):
        if section.plan.guard_at[number] and load64(section.shared + section.plan.guard_at[number]) != section.plan.guard_value[number]:
            return False
    return True


cdef inline bint is_done(const unsigned char *timer, uint64_t queue_offset, uint64_t word, uint64_t bit) noexcept nogil:
    """Whether a message of the timer is delivered, cancelled or rolled; ``bit`` of ``word`` is its own."""
    return queue_offset < load64(timer + T_CLEARING_TO) or word & bit != 0


cdef int place(Section *section, unsigned char **target, unsigned char **blank, uint64_t *left) noexcept nogil:
    """Find where the records go: behind the last record, or at the head of the next file, with a blank record before it."""
    cdef uint64_t end = load64(section.shared + H_PUBLISHED_TO)
    cdef int file
    for file in range(2):
        if section.log[file] != NULL and section.log_base[file] <= end < section.log_base[file] + section.log_file_bytes:
            left[0] = section.log_base[file] + section.log_file_bytes - end
            blank[0] = NULL
            if section.plan.size + BLANK_RECORD_SIZE <= left[0]:
                target[0] = section.log[file] + (end - section.log_base[file])
                section.commit_log_offset = end
                return DONE
            if file == 1 or section.log[1] == NULL or section.log_base[1] != section.log_base[0] + section.log_file_bytes:
                return NEED_LOG_FILE
            blank[0] = section.log[0] + (end - section.log_base[0])
            target[0] = section.log[1]
            section.commit_log_offset = section.log_base[1]
            return DONE
    return NEED_LOG_FILE


cdef void complete_records(Section *section, int64_t timestamp) noexcept nogil:
    """Write offsets and store timestamp, which are known only under the mutex, then the CRC over the whole record."""
    cdef unsigned char *at = section.staged
    cdef uint64_t commit_log_offset = section.commit_log_offset
    cdef int number
    cdef int32_t size
    for number in range(section.plan.count):
        size = section.sizes[number]
        put_i64(at + R_QUEUE_OFFSET, section.queue_offset + number)
        if section.other_slot != NULL and number == section.plan.count - 1:
            put_i64(at + R_QUEUE_OFFSET, section.other_queue_offset)
        put_i64(at + R_COMMIT_LOG_OFFSET, commit_log_offset)
        put_i64(at + store_timestamp_at(at), timestamp)
        if section.plan.delay_ms:
            section.tags_codes[number] = timestamp + section.plan.delay_ms
        put_crc_property(at + size - CRC_PROPERTY_SIZE, rmq_crc32(0, at, size - CRC_PROPERTY_SIZE) & 0x7FFFFFFF)
        at += size
        commit_log_offset += size


cdef void copy_records(Section *section, unsigned char *target) noexcept nogil:
    cdef uint64_t half
    if armed_point == AT_RECORD_HALF_COPIED:
        half = section.sizes[0] // 2
        memcpy(target, section.staged, half)
        reach_point(AT_RECORD_HALF_COPIED)
    memcpy(target, section.staged, section.plan.size)


cdef void write_entries(Section *section) noexcept nogil:
    cdef uint64_t commit_log_offset = section.commit_log_offset
    cdef unsigned char *entry
    cdef int number
    for number in range(section.plan.count):
        entry = entry_of(section, number)
        put_i64(entry, commit_log_offset)
        keep_program_order()
        if number == 0:
            reach_point(AT_ENTRY_HALF_WRITTEN)
        put_i64(entry + E_TAGS_CODE, section.tags_codes[number])
        keep_program_order()  # the size makes it an entry
        put_i32(entry + E_SIZE, section.sizes[number])
        commit_log_offset += section.sizes[number]


cdef int refusal(Section *section) noexcept nogil:
    """Why the append cannot be made as things stand, or what is needed first; DONE when it can be made."""
    cdef unsigned char *shared = section.shared
    if load64(shared + H_APPEND_STAGE) != IDLE:
        return NEED_REPAIR
    if section.plan.progress_at and load64(shared + section.plan.progress_at) != section.plan.progress_from:
        return OUTDATED
    if not guarded(section):
        return OUTDATED
    if section.plan.done_at and is_done(
            section.timer, section.plan.done_offset, load64(shared + section.plan.done_at), section.plan.done_bit):
        return OUTDATED
    if load64(shared + H_RESTRICTED) & ~section.plan.admitted:
        return RESTRICTED
    if load64(shared + H_POISONED):
        return POISONED
    if load64(shared + H_DISK_FULL) and not section.plan.makes_room:
        return DISK_FULL
    return DONE


cdef int place_entries(Section *section) noexcept nogil:
    """Take the queue offsets; NEED_QUEUE_FILE when the file of an entry is not mapped."""
    section.queue_offset = load64(section.slot + Q_MAX_OFFSET)
    if section.other_slot != NULL:
        section.other_queue_offset = load64(section.other_slot + Q_MAX_OFFSET)
        if entry_of(section, section.plan.count - 1) == NULL:
            return NEED_OTHER_QUEUE_FILE
        if entry_at(section, section.queue_offset + section.plan.count - 2) == NULL:
            return NEED_QUEUE_FILE
    elif entry_at(section, section.queue_offset + section.plan.count - 1) == NULL:
        return NEED_QUEUE_FILE
    if section.plan.timer_room and (
            section.queue_offset + section.plan.count > load64(section.timer + T_DONE_TO) + section.plan.timer_room):
        return TIMER_FULL
    return NEED_QUEUE_FILE if entry_at(section, section.queue_offset) == NULL else DONE


cdef int append_section(Section *section) noexcept nogil:
    """The append, under the append mutex. It publishes everything, or changes nothing and says what it needs.

    The stage tells the next owner what a death left behind. While it is COPYING, the next owner zeroes the bytes above
    ``published_to``. Once it is RECORDED, every record is whole, and the next owner does the rest again
    (store/append/appending.py).
    """
    cdef unsigned char *shared = section.shared
    cdef unsigned char *target = NULL
    cdef unsigned char *blank = NULL
    cdef uint64_t left = 0
    cdef uint64_t end
    cdef int64_t timestamp
    cdef int outcome
    expect_write(section.slot + Q_MAX_OFFSET, 1)
    outcome = refusal(section)
    if outcome != DONE:
        return outcome
    outcome = place(section, &target, &blank, &left)
    if outcome != DONE:
        return outcome
    expect_write(target, section.plan.size + BLANK_RECORD_SIZE)
    outcome = place_entries(section)
    if outcome != DONE:
        return outcome
    expect_write(entry_at(section, section.queue_offset), CONSUME_QUEUE_ENTRY_SIZE)
    if not can_be_written(section, target, blank):
        return NO_ROOM
    reach_point(AT_APPEND_LOCKED)

    timestamp = load64(shared + H_LAST_STORE_TIMESTAMP)
    if not section.now < timestamp < section.now + 1000:
        timestamp = section.now  # a clock set back by more than a second is believed
    complete_records(section, timestamp)
    end = section.commit_log_offset + section.plan.size

    announce(section, end)
    reach_point(AT_APPEND_ANNOUNCED)
    if blank != NULL:
        put_i32(blank, <int32_t>left)
        put_i32(blank + R_MAGIC, BLANK_MAGIC)
        reach_point(AT_BLANK_WRITTEN)
    copy_records(section, target)
    reach_point(AT_RECORDS_COPIED)

    store64(shared + H_APPEND_STAGE, RECORDED)
    keep_program_order()
    reach_point(AT_RECORDS_ANNOUNCED)
    write_entries(section)
    reach_point(AT_ENTRIES_WRITTEN)

    store64(shared + H_PUBLISHED_TO, end)
    reach_point(AT_RECORDS_PUBLISHED)
    publish_queues(section)
    if timestamp != <int64_t>load64(shared + H_LAST_STORE_TIMESTAMP):
        store64(shared + H_LAST_STORE_TIMESTAMP, timestamp)
    store64(shared + H_APPEND_STAGE, IDLE)

    section.rolled = blank != NULL
    section.lanes = sleepers_of(section)
    return DONE


cdef bint can_be_written(Section *section, unsigned char *target, unsigned char *blank) noexcept nogil:
    """Whether every page that the append writes has a block of its own, or gets one, before anything is written.

    That of the header was asked for before the mutex was taken.
    """
    cdef Plan *plan = &section.plan
    cdef uint64_t last
    if watched_count == 0:
        return True
    last = section.queue_offset + plan.count - 1 - (section.other_slot != NULL)
    return (can_store(section.slot, Q_WAITING_LANES + 8)
            and (section.other_slot == NULL or can_store(section.other_slot, Q_WAITING_LANES + 8))
            and (section.other_slot == NULL or can_store(entry_of(section, plan.count - 1), CONSUME_QUEUE_ENTRY_SIZE))
            and (plan.progress_at == 0 or can_store(section.shared + plan.progress_at, 8))
            and (plan.done_at == 0 or can_store(section.shared + plan.done_at, 8))
            and (blank == NULL or can_store(blank, BLANK_RECORD_SIZE))
            and can_store(target, plan.size)
            and can_store_entries(section, last))


cdef bint can_store_entries(Section *section, uint64_t last) noexcept nogil:
    cdef unsigned char *first_at = entry_at(section, section.queue_offset)
    cdef unsigned char *last_at = entry_at(section, last)
    if first_at <= last_at and <uint64_t>(last_at - first_at) == (last - section.queue_offset) * CONSUME_QUEUE_ENTRY_SIZE:
        return can_store(first_at, last_at + CONSUME_QUEUE_ENTRY_SIZE - first_at)
    # in two files: to the end of the first, and from the begin of the second
    return (can_store(first_at, section.entries[0] + section.room[0] * CONSUME_QUEUE_ENTRY_SIZE - first_at)
            and can_store(section.entries[1], last_at + CONSUME_QUEUE_ENTRY_SIZE - section.entries[1]))


cdef void announce(Section *section, uint64_t end) noexcept nogil:
    """Say what is about to be written, and what else the append changes, before the first byte."""
    cdef unsigned char *shared = section.shared
    cdef Plan *plan = &section.plan
    store64(shared + H_APPEND_FROM, section.commit_log_offset)
    store64(shared + H_WRITTEN_TO, end)
    store64(shared + H_BYTES_BEFORE, load64(section.slot + Q_BYTES_IN))
    if section.other_slot != NULL:
        store64(shared + H_OTHER_BYTES_BEFORE, load64(section.other_slot + Q_BYTES_IN))
    store64(shared + H_PROGRESS_AT, plan.done_at if plan.done_at else plan.progress_at)
    store64(shared + H_PROGRESS_TO, plan.done_bit if plan.done_at else plan.progress_from + 1)
    store64(shared + H_APPEND_STAGE, COPYING)
    keep_program_order()


cdef void publish_queues(Section *section) noexcept nogil:
    """Show the messages in their queues; then move the word, or set the bit, that this append moves on."""
    cdef unsigned char *shared = section.shared
    cdef Plan *plan = &section.plan
    cdef uint64_t others = section.sizes[plan.count - 1] if section.other_slot != NULL else 0
    store64(section.slot + Q_BYTES_IN, load64(section.slot + Q_BYTES_IN) + plan.size - others)
    store64_seq(section.slot + Q_MAX_OFFSET, section.queue_offset + plan.count - (section.other_slot != NULL))
    reach_point(AT_QUEUE_PUBLISHED)
    if section.other_slot != NULL:
        store64(section.other_slot + Q_BYTES_IN, load64(section.other_slot + Q_BYTES_IN) + others)
        store64_seq(section.other_slot + Q_MAX_OFFSET, section.other_queue_offset + 1)
        reach_point(AT_OTHER_QUEUE_PUBLISHED)
    if plan.progress_at:
        store64(shared + plan.progress_at, plan.progress_from + 1)
        reach_point(AT_PROGRESS_ADVANCED)
    if plan.done_at:
        or64(shared + plan.done_at, plan.done_bit)
        reach_point(AT_PROGRESS_ADVANCED)


cdef uint64_t sleepers_of(Section *section) noexcept nogil:
    """Take the arrival lanes on which consumers of the queues, or of the whole log, sleep: this append wakes them."""
    cdef uint64_t lanes = 0
    if load64_seq(section.shared + H_FOLLOWING_LANES):
        lanes = exchange64(section.shared + H_FOLLOWING_LANES, 0)
    if load64_seq(section.slot + Q_WAITING_LANES):
        lanes |= exchange64(section.slot + Q_WAITING_LANES, 0)
    if section.other_slot != NULL and load64_seq(section.other_slot + Q_WAITING_LANES):
        lanes |= exchange64(section.other_slot + Q_WAITING_LANES, 0)
    return lanes


cdef void wake_lanes(unsigned char *shared, uint64_t lanes) noexcept nogil:
    cdef int lane
    cdef unsigned char *word
    for lane in range(64):
        if lanes >> lane & 1:
            word = shared + ARRIVAL_LANES_AT + lane * ARRIVAL_LANE_STRIDE
            add32(word, 1)
            futex_wake(word, 2147483647)


cdef int locked_append(Section *section, int64_t timeout_ns, int64_t busy_ns, int *outcome) noexcept nogil:
    """Wait for the append mutex and run the section. Returns an errno, or 0 and sets ``outcome``.

    EBUSY: one holder kept the mutex for ``busy_ns`` and nothing was published meanwhile. A thread that takes the mutex
    again and again, and gets on, only makes others wait: that is not EBUSY.
    """
    cdef unsigned char *mutex = section.shared + H_APPEND_MUTEX
    cdef int failure = ETIMEDOUT
    cdef uint64_t owner
    cdef uint64_t published_to
    while failure == ETIMEDOUT and timeout_ns > 0:
        owner = mutex_owner(mutex)
        published_to = load64(section.shared + H_PUBLISHED_TO)
        failure = mutex_wait(mutex, section.me, min(timeout_ns, busy_ns))
        if (failure == ETIMEDOUT and timeout_ns >= busy_ns and owner == mutex_owner(mutex)
                and published_to == load64(section.shared + H_PUBLISHED_TO)):
            return EBUSY
        timeout_ns -= busy_ns
    if failure:
        return failure
    section.now = wall_clock_ms()
    outcome[0] = append_section(section)
    mutex_release(section.shared + H_APPEND_MUTEX, section.me)
    return 0
