# --- ahead: pages of a commit log file, made before the writer needs them ---------------------------------------------

@cython.final
cdef class Ahead:
    """Keeps the pages ahead of this process's appends populated, in a thread of its own (store/append/preparer.py).

    The thread sleeps until an append passes ``mark``. Both sides look at words of this process only.
    """

    cdef Mapping shared
    cdef uint64_t mark                  # an append past it wakes the thread, if that waits
    cdef uint32_t word                  # futex
    cdef uint32_t waiting
    cdef uint32_t stopped

    cdef inline void pass_to(self, uint64_t commit_log_offset) noexcept:
        """Wake the thread if an append up to this offset has passed its mark."""
        if load32(&self.waiting) and commit_log_offset > load64(&self.mark):
            self.wake()

    def populate(self, Mapping mapping not None, uint64_t base, uint64_t start, uint64_t least, uint64_t most,
                 Mapping behind=None):
        cdef uint64_t end = base + mapping.size
        cdef uint64_t populated_to = start
        cdef uint64_t released_to = base
        cdef bint left = behind is not None  # pages of the file behind are not let go yet
        cdef uint64_t seen = load64(self.shared.address + H_PUBLISHED_TO)
        cdef uint64_t published_to, ahead, target
        cdef int failure = 0
        if not base <= start <= end:
            raise ValueError(f"{start} is not inside the file at {base}")
        mapping.base = base
        mapping.end_word = self.shared.address + H_PUBLISHED_TO
        with nogil:
            while populated_to < end and failure == 0 and not load32(&self.stopped):
                published_to = load64(self.shared.address + H_PUBLISHED_TO)
                if published_to >= end:
                    populated_to = end
                    break
                if left and published_to > base:
                    madvise(behind.address, behind.size, MADV_DONTNEED)
                    left = False
                if published_to > released_to + 2 * least:
                    release(mapping, base, &released_to, published_to - least)
                ahead = max(least, min(most, 2 * (published_to - seen)))
                seen = published_to
                target = min(end, published_to + ahead)
                failure = self.populate_to(mapping, base, &populated_to, target)
                if populated_to < end:
                    self.sleep(published_to + ahead // 2)
        mapping.end_word = NULL
        if failure and failure != EINVAL:  # EINVAL: a kernel before 5.14; pages are then made at first touch
            raise OSError(failure, os.strerror(failure))
        return populated_to

    cdef int populate_to(self, Mapping mapping, uint64_t base, uint64_t *populated_to, uint64_t target) noexcept nogil:
        """Populate in steps, and leave out the pages that the writer has passed meanwhile. Returns an errno."""
        cdef uint64_t step = 256 << 10
        cdef uint64_t start, end, published_to
        while populated_to[0] < target:
            published_to = load64(self.shared.address + H_PUBLISHED_TO)
            start = max(populated_to[0], published_to) - base & ~<uint64_t>4095
            end = min(target - base, (start + step) & ~(step - 1))
            if start < end and madvise(mapping.address + start, end - start, MADV_POPULATE_WRITE):
                return errno
            populated_to[0] = base + max(start, end)
        return 0

    cdef void sleep(self, uint64_t mark) noexcept nogil:
        """Sleep until an append of this process has passed ``mark``, or for a second."""
        cdef uint32_t seen = load32(&self.word)
        store64(&self.mark, mark)
        store32(&self.waiting, 1)
        if load64_seq(self.shared.address + H_PUBLISHED_TO) <= mark and not load32(&self.stopped):
            futex_wait(&self.word, seen, 1000000000)
        store32(&self.waiting, 0)

    def wait_for_append(self):
        with nogil:
            self.sleep(load64(self.shared.address + H_PUBLISHED_TO))

    def stop(self):
        store32(&self.stopped, 1)
        self.wake()

    cdef void wake(self) noexcept nogil:
        store32(&self.waiting, 0)
        add32(&self.word, 1)
        futex_wake(&self.word, 2147483647)


cdef void release(Mapping mapping, uint64_t base, uint64_t *released_to, uint64_t target) noexcept nogil:
    """Take pages out of this process's page table. They stay in the page cache, dirty as they are."""
    cdef uint64_t start = released_to[0] - base
    cdef uint64_t end = (target - base) & ~<uint64_t>4095
    if end > start:
        madvise(mapping.address + start, end - start, MADV_DONTNEED)
        released_to[0] = base + end
