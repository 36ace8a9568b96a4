# --- resident pages: how much of the files that it maps a process keeps in its page table -----------------------------
#
# A page that was touched counts as memory of the process until it is unmapped, and a log has no end. So whatever goes
# through a mapping counts the windows of it that are touched. After some megabytes of them the process asks the kernel
# how many pages of files it has, and if these are too many, it takes those of all mappings that were used since the last
# time out of its page table (MADV_DONTNEED). The pages stay in the page cache, dirty as they are, and every address stays
# valid: the next touch finds the page again, 16 pages at a time. All of this happens under the GIL, but for madvise.

cdef enum:
    WINDOW_BITS = 16              # Linux maps up to 64 KiB around a page that is read
    WINDOWS_A_LOOK = 256
    PAGE = 4096
    PAGES_A_LOOK = 256            # of a look at what the page cache has: a megabyte
    BEHIND_END = 1 << 20          # bytes behind the end of the log that stay: a reader may follow the writer closely


cdef struct Pages:
    unsigned char *address
    size_t size


cdef uint64_t most_resident = 128 << 20
cdef uint64_t touched = 0         # windows, since the last look
cdef PyObject *first_used = NULL  # the chain of mappings that were used since their pages were let go; no references


def limit_resident(uint64_t most):
    global most_resident
    most, most_resident = most_resident, most
    return most


cdef inline int touch(Mapping mapping, uint64_t at, uint64_t size) except -1:
    """Count a touch of some bytes that are about to be read or written, or just were."""
    if (at + size) >> WINDOW_BITS == mapping.window and mapping.is_used:
        return 0
    mapping.window = (at + size) >> WINDOW_BITS
    return use(mapping, size)


cdef int use(Mapping mapping, uint64_t size) except -1:
    """Count a touch of ``size`` bytes somewhere in a mapping, and let go of pages if there are too many."""
    global touched, first_used
    if not mapping.is_used:
        mapping.is_used = True
        mapping.before = NULL
        mapping.behind = first_used
        if first_used != NULL:
            (<Mapping>first_used).before = <PyObject *>mapping
        first_used = <PyObject *>mapping
    touched += (size >> WINDOW_BITS) + 1
    if touched >= WINDOWS_A_LOOK:
        touched = 0
        if resident_of_files() > most_resident:
            let_go()
    return 0


cdef void leave_chain(Mapping mapping) noexcept:
    global first_used
    if mapping.before == NULL:
        first_used = mapping.behind
    else:
        (<Mapping>mapping.before).behind = mapping.behind
    if mapping.behind != NULL:
        (<Mapping>mapping.behind).before = mapping.before
    mapping.is_used = False


cdef uint64_t resident_of_files() noexcept nogil:
    """Bytes of files in this process's page table, whoever mapped them. All if there is no /proc, or no descriptor."""
    cdef char text[128]
    cdef char *at = text
    cdef ssize_t size = -1
    cdef int fd = c_open("/proc/self/statm", O_RDONLY | O_CLOEXEC)
    if fd >= 0:
        size = c_read(fd, text, sizeof(text) - 1)
        c_close(fd)
    if size <= 0:
        return <uint64_t>-1
    text[size] = 0
    strtoull(at, &at, 10)  # the size of the address space, then all resident pages, then those of files
    strtoull(at, &at, 10)
    return strtoull(at, &at, 10) * PAGE


cdef int let_go() except -1:
    """Take the pages of all used mappings out of the page table. Noted addresses count as stale: they note no use."""
    global unmapped
    cdef list used = []
    cdef Mapping mapping
    cdef Py_ssize_t number, count
    cdef Pages *pages
    while first_used != NULL:
        mapping = <Mapping>first_used
        used.append(mapping)
        leave_chain(mapping)
    unmapped += 1
    count = len(used)
    pages = <Pages *>malloc(max(1, count) * sizeof(Pages))
    if pages == NULL:
        raise MemoryError()
    for number in range(count):
        mapping = used[number]
        pages[number].address = mapping.address
        pages[number].size = left_behind(mapping)
    with nogil:
        for number in range(count):
            if pages[number].size:
                madvise(pages[number].address, pages[number].size, MADV_DONTNEED)
    free(pages)
    return 0


cdef size_t left_behind(Mapping mapping) noexcept:
    """How many bytes of a mapping can go: all, but for the pages around the end of the log that were populated ahead."""
    cdef uint64_t end
    if mapping.end_word == NULL:
        return mapping.size
    end = load64(mapping.end_word)
    if end < mapping.base + BEHIND_END:
        return 0
    return min(<uint64_t>mapping.size, (end - mapping.base - BEHIND_END) & ~<uint64_t>(PAGE - 1))
