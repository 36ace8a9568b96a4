# --- the committer: runs the append section, and gets what that needs -------------------------------------------------

cdef enum:
    BUSY = -2                           # an outcome beside those of the section: another thread has the mutex


cdef struct NotedFile:                  # where the last append to a queue found its consume queue file
    unsigned char *entries
    uint64_t first_entry
    uint64_t room
    uint64_t unmapped


@cython.final
cdef class _Committer:
    """Puts staged records into the log. It asks ``files`` for files and repairs, never while it holds the mutex.

    ``files`` is a :class:`rmqclient.store.append.appending.AppendFiles`.
    """

    cdef Mapping shared
    cdef object files
    cdef Ahead ahead
    cdef tuple log_files                # (Mapping, base, Mapping or None, base)
    cdef list queue_files               # by slot: (Mapping, first entry, Mapping or None, first entry), borrowed; or None
    cdef NotedFile *noted               # by slot; good for as long as nothing was unmapped
    cdef int noted_count
    cdef uint64_t log_file_bytes
    cdef uint64_t entries_per_file
    cdef int64_t timeout_ns
    cdef int64_t busy_ns
    cdef Py_ssize_t queue_table_at
    cdef Py_ssize_t queue_slot_size
    cdef Py_ssize_t timer_at
    cdef uint64_t timer_bits
    cdef uint64_t window                # of the log, see resident.pxi: the one in which the last append ended

    def __dealloc__(self):
        free(self.noted)

    cdef _Staging new_staging(self):
        """Return an empty staging for sections of this store."""
        cdef _Staging staging = _Staging.__new__(_Staging)
        staging.section.shared = self.shared.address
        staging.section.me = self.shared.me
        staging.section.timer = self.shared.address + self.timer_at
        staging.section.log_file_bytes = self.log_file_bytes
        return staging

    cdef int commit(self, _Staging staging, int slot) except -1:
        """Append what is staged to the queue of a slot. 0: a word of the plan had moved on, and nothing changed.

        The first attempt takes the address that the last append to this queue has noted: with 10,000 queues each object
        on the way to the file would have to come from main memory. A noted address holds no reference to its mapping, so
        that attempt keeps the GIL.
        """
        cdef Section *section = &staging.section
        cdef bint noted = section.plan.other_queue == NO_QUEUE and self.point_noted(slot, section)
        cdef int outcome
        cdef uint64_t seen = 0
        cdef list held = None  # files that were provided, until they are used: the mapping cache may let go of them
        section.slot = self.slot_at(slot)
        section.other_slot = NULL if section.plan.other_queue == NO_QUEUE else self.slot_at(section.plan.other_queue)
        while True:
            seen = unmapped
            outcome = self.attempt(section, slot, noted)
            if outcome == DONE:
                break
            if outcome == OUTDATED:
                return 0
            noted = False
            if outcome != BUSY:
                if held is None:
                    held = []
                held.append(self.provide(outcome, slot, &section.plan))
        if not noted:
            self.note(slot, section, seen)
        reach_point(AT_APPEND_FINISHED)
        if section.lanes:
            with nogil:
                wake_lanes(section.shared, section.lanes)
        if section.rolled:
            self.files.rolled()
        self.ahead.pass_to(section.commit_log_offset + section.plan.size)
        if section.plan.admitted:
            section.plan.replicated = self.files.replicated(section.commit_log_offset + section.plan.size)
        return 1

    cdef int attempt(self, Section *section, int slot, bint noted) except -1:
        """Run the section once; return its outcome, or BUSY when a noted address cannot wait for the mutex."""
        cdef tuple log_files = self.log_files  # held while the section runs, as the mappings are: rule 5
        cdef tuple queue_files
        cdef Mapping entries, more_entries, other_entries
        cdef int outcome = BUSY
        cdef int failure
        point_log(log_files, section)
        if not noted:
            queue_files = self.files_of(slot)
            entries, more_entries = lent(queue_files, 0), lent(queue_files, 2)
            point_queue(queue_files, entries, more_entries, section)
            if entries is not None:
                use(entries, 0)
            if more_entries is not None:
                use(more_entries, 0)
        if section.other_slot != NULL:
            queue_files = self.files_of(section.plan.other_queue)
            other_entries = lent(queue_files, 0)
            if other_entries is not None:
                use(other_entries, 0)
            section.other_entries = NULL if other_entries is None else other_entries.address
            section.other_first_entry = 0 if other_entries is None else queue_files[1]
            section.other_room = 0 if other_entries is None else other_entries.reserved // CONSUME_QUEUE_ENTRY_SIZE
        if not can_store(section.shared + H_APPEND_MUTEX, 8):
            return NO_ROOM
        failure = mutex_try(section.shared + H_APPEND_MUTEX, section.me, 200)
        if failure == 0:
            outcome = append_section(section)
            mutex_release(section.shared + H_APPEND_MUTEX, section.me)
        elif failure == EBUSY and noted:
            return BUSY
        elif failure == EBUSY:
            with nogil:
                failure = locked_append(section, self.timeout_ns, self.busy_ns, &outcome)
        if failure:
            self.raise_lock_failure(failure)
        if outcome == DONE and (section.commit_log_offset + section.plan.size) >> WINDOW_BITS != self.window:
            self.use_log(log_files, section)
        return outcome

    cdef int use_log(self, tuple log_files, Section *section) except -1:
        """Count the pages of the log that an append wrote."""
        cdef int file = 0 if section.commit_log_offset < section.log_base[0] + section.log_file_bytes else 1
        self.window = (section.commit_log_offset + section.plan.size) >> WINDOW_BITS
        return use(<Mapping>log_files[2 * file], section.plan.size)

    cdef inline unsigned char *slot_at(self, int number) noexcept:
        return self.shared.address + self.queue_table_at + number * self.queue_slot_size

    cdef tuple files_of(self, int slot):
        while slot >= len(self.queue_files):
            self.queue_files.append(None)
        return self.queue_files[slot]

    cdef bint point_noted(self, int slot, Section *section) noexcept:
        if slot >= self.noted_count or self.noted[slot].unmapped != unmapped:
            return False
        section.entries[0] = self.noted[slot].entries
        section.first_entry[0] = self.noted[slot].first_entry
        section.room[0] = self.noted[slot].room
        section.entries[1] = NULL
        return True

    cdef int note(self, int slot, Section *section, uint64_t seen) except -1:
        """Note where the queue's file is, as of a count of unmapped files: another may have gone since."""
        cdef int file = 0 if section.entries[1] == NULL else 1
        cdef void *grown
        if slot >= self.noted_count:
            grown = realloc(self.noted, (slot + 1024) * sizeof(NotedFile))
            if grown == NULL:
                raise MemoryError()
            self.noted = <NotedFile *>grown
            memset(self.noted + self.noted_count, 0, (slot + 1024 - self.noted_count) * sizeof(NotedFile))
            self.noted_count = slot + 1024
        self.noted[slot].entries = section.entries[file]
        self.noted[slot].first_entry = section.first_entry[file]
        self.noted[slot].room = section.room[file]
        self.noted[slot].unmapped = seen
        return 0

    cdef tuple provide(self, int outcome, int slot, Plan *plan):
        """Get what the section needs.

        Return files that must be held until it has run again. Raises when there is no way.
        """
        if outcome == POISONED:
            raise StorePoisoned(
                f"a flush failed with errno {load64(self.shared.address + H_POISONED)}; nothing was written. "
                "Look at the disk, then restart every process that uses the store")
        if outcome == TIMER_FULL:
            raise TimerFull(
                f"the timer keeps at most {self.timer_bits} messages, counted from the oldest message that waits; nothing "
                "was written. Send with shorter delays, or see that a process with housekeeping runs")
        if outcome == NEED_REPAIR:
            self.files.repair()
            return None
        if outcome == NO_ROOM:
            self.files.check_room()
            raise StoreFull(
                "nothing was written: a page of the store shares its block with a clone or a snapshot, and there was no "
                "room for another block. Make room, and try again")
        if outcome == DISK_FULL:
            self.files.check_room()
        if outcome == RESTRICTED:
            plan.admitted = self.files.admit()
            return None
        if outcome == NEED_LOG_FILE:
            self.log_files = self.files.log_files(plan.size)
            return self.log_files
        if outcome == NEED_OTHER_QUEUE_FILE:
            slot = plan.other_queue
        provided = self.files.queue_files(slot, 1 if outcome == NEED_OTHER_QUEUE_FILE else plan.count)
        self.queue_files[slot] = borrowed(provided)
        return provided

    cdef int raise_lock_failure(self, int failure) except -1:
        process = mutex_process(self.shared.address + H_APPEND_MUTEX)
        if failure == EBUSY:
            raise PageCacheBusy(
                f"one append, by process {process}, has kept the append lock for {self.busy_ns // 1000000} ms "
                "(page_cache_busy_timeout_ms); nothing was written. The disk is slower than the senders, or the holder is "
                "stopped: send less, and try again")
        if failure == ETIMEDOUT:
            raise StoreBusy(
                f"waited {self.timeout_ns // 1000000} ms for the append lock, held by process {process}; nothing was "
                "written. The holder is stopped or starved: try again, or continue or kill it")
        raise OSError(failure, os.strerror(failure))


cdef void point_log(tuple log_files, Section *section):
    section.log[0] = section.log[1] = NULL
    if log_files is not None:
        section.log[0] = (<Mapping>log_files[0]).address
        section.log_base[0] = log_files[1]
        if log_files[2] is not None:
            section.log[1] = (<Mapping>log_files[2]).address
            section.log_base[1] = log_files[3]


cdef void point_queue(tuple queue_files, Mapping entries, Mapping more_entries, Section *section):
    section.entries[0] = section.entries[1] = NULL
    if entries is not None:
        section.entries[0] = entries.address
        section.first_entry[0] = queue_files[1]
        section.room[0] = entries.reserved // CONSUME_QUEUE_ENTRY_SIZE
    if more_entries is not None:
        section.entries[1] = more_entries.address
        section.first_entry[1] = queue_files[3]
        section.room[1] = more_entries.reserved // CONSUME_QUEUE_ENTRY_SIZE
