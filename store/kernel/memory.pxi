# --- mappings, words and the mutex: what processes share --------------------------------------------------------------

@cython.final
cdef class LockOwner:
    """Who locks the mutexes of a store for one opening; see store/files/lock_owner.py."""

    cdef Owner me
    cdef object __weakref__

    def __cinit__(self, int lock_file, uint64_t number):
        cdef int failure = owner_enter(lock_file, number)
        self.me.lock_file = -1
        if failure:
            raise OSError(failure, os.strerror(failure))
        self.me.lock_file = lock_file
        self.me.number = number

    def __dealloc__(self):
        if self.me.lock_file >= 0:
            c_close(self.me.lock_file)

    @property
    def number(self):
        return self.me.number

    def leave_to_parent(self):
        """Close the descriptor in a forked child, which would keep a dead parent alive, and lock nothing any more."""
        cdef int lock_file = self.me.lock_file
        self.me = no_owner
        if lock_file >= 0:
            c_close(lock_file)


@cython.final
cdef class Mapping:
    """A shared mapping of a whole file. It keeps no descriptor; the last reference to it unmaps the file."""

    cdef unsigned char *address
    cdef object __weakref__
    cdef readonly Py_ssize_t size
    cdef readonly bint writable
    cdef public uint64_t reserved       # bytes from the begin that have blocks, as far as is known: no store goes behind
    cdef uint64_t window                # the last one that was touched, see resident.pxi
    cdef bint is_used                   # some of its pages may be resident: it stands in the chain of those
    cdef PyObject *before               # in that chain
    cdef PyObject *behind
    cdef const unsigned char *end_word  # of a log file with pages that an Ahead keeps populated: the end of the log; else NULL
    cdef uint64_t base                  # and where the file begins in the log
    cdef LockOwner owner                # who locks the mutexes in it, once that is told
    cdef const Owner *me                # the same, for the sections
    cdef int watched                    # its number in room.h, or -1
    cdef bytes path                     # for room.h
    cdef bytes reserve

    def __cinit__(self, int fd, Py_ssize_t size, *, bint writable=True, bytes path=None):
        cdef void *address
        if size <= 0:
            raise ValueError(f"size={size}: a mapping needs at least one byte")
        address = mmap(NULL, size, PROT_READ | PROT_WRITE if writable else PROT_READ, MAP_SHARED, fd, 0)
        if address == MAP_FAILED:
            raise OSError(errno, os.strerror(errno))
        self.address = <unsigned char *>address
        self.size = self.reserved = size
        self.writable = writable
        self.me = &no_owner
        self.watched = -1
        if writable and path is not None and can_share_blocks(fd):
            self.path = path
            self.watched = watch(address, size, PyBytes_AS_STRING(path))

    def __dealloc__(self):
        global unmapped
        unwatch(self.watched)
        if self.is_used:
            leave_chain(self)
        if self.address != NULL:
            unmapped += 1
            munmap(self.address, self.size)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.address, self.size, not self.writable, flags)

    def __len__(self):
        return self.size

    def lock_as(self, LockOwner owner not None):
        if self.owner is not None:
            raise ValueError("the owner is told once: another thread may hold a mutex")
        self.owner = owner
        self.me = &owner.me

    def has_reserve(self, bytes path not None):
        """Say once which file holds room for all of this one."""
        if self.reserve is not None:
            raise ValueError("the reserve is told once: a handler may be reading its path")
        self.reserve = path
        if self.watched >= 0:
            watched[self.watched].reserve = PyBytes_AS_STRING(path)

    def read_no_further(self):
        """Let the first touch of a page bring in that page only, and not the 128 KiB around it, which may be all zeros.

        A kernel that refuses this advice uses more memory, and works the same.
        """
        madvise(self.address, self.size, MADV_RANDOM)

    def populate(self, Py_ssize_t begin=0, end=None):
        """Make pages of the file now, all of them if not told which: one call instead of a page fault for each."""
        cdef int failure
        cdef Py_ssize_t stop = self.size if end is None else end
        if not 0 <= begin <= stop <= self.size or begin % PAGE:
            raise ValueError(f"bytes {begin} to {stop} are no pages of a file of {self.size}")
        with nogil:
            failure = madvise(self.address + begin, stop - begin, MADV_POPULATE_WRITE)
        if failure and errno != EINVAL:  # EINVAL: a kernel before 5.14; pages are then made at first touch
            raise OSError(errno, os.strerror(errno))

    def is_cached(self, Py_ssize_t begin, Py_ssize_t end):
        cdef unsigned char pages[PAGES_A_LOOK]
        cdef Py_ssize_t number, count
        if not 0 <= begin <= end <= self.size:
            raise ValueError(f"bytes {begin} to {end} are not in a file of {self.size}")
        if begin < end:
            begin -= begin % PAGE
        while begin < end:
            count = min(<Py_ssize_t>PAGES_A_LOOK, (end - begin + PAGE - 1) // PAGE)
            if mincore(self.address + begin, count * PAGE, pages):
                return True  # a kernel that cannot say: the look itself will tell
            for number in range(count):
                if not pages[number] & 1:
                    return False
            begin += count * PAGE
        return True

    def show(self, int fd):
        """Map another file over this one. A thread that reads meanwhile sees a word of one of the two."""
        cdef void *address
        with nogil:
            address = mmap(self.address, self.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0)
        if address == MAP_FAILED:
            raise OSError(errno, os.strerror(errno))

    def use(self, Py_ssize_t size):
        use(self, size)

    def detach(self):
        """Map zeros over the file, so that the file system can free the blocks of a removed file.

        The address stays mapped: a reader finds zeros there, and gets no signal.
        """
        cdef void *address
        with nogil:
            address = mmap(self.address, self.size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        if address == MAP_FAILED:
            raise OSError(errno, os.strerror(errno))


def reserve_blocks(int fd, Py_ssize_t size):
    cdef int failure = EINTR
    with nogil:
        while failure == EINTR:
            failure = errno if fallocate(fd, 0, 0, size) else 0
    if failure and failure != EOPNOTSUPP:
        raise OSError(failure, os.strerror(failure))
    return failure == 0


cdef Mapping _clock = None  # what clock_words points to


def read_clock(Mapping words not None):
    global _clock, clock_words
    if _clock is not None:
        raise ValueError("the words of the clock are set once: another thread may be reading them")
    if words.size < C_MOVED + 4:
        raise ValueError(f"{words.size} bytes cannot hold the words of a clock")
    _clock = words
    clock_words = <Clock *>words.address


cdef uint64_t unmapped = 1  # grows when a mapping goes, or its pages, under the GIL: at the same count a noted address is good


cdef tuple borrowed(tuple files):
    """Return (Mapping, begin[, Mapping or None, begin]) with weak references, so that the mapping cache can let go.

    A process may use more files than it can map. An object that uses a file now and then borrows its mapping, and asks
    again when the mapping is gone. So the cache's limit holds for all mappings of the process.
    """
    return tuple([PyWeakref_NewRef(part, None) if isinstance(part, Mapping) else part for part in files])


cdef Mapping lent(tuple files, int number):
    """Return a borrowed mapping, None when it is gone. Keep the returned Mapping alive while you use its address."""
    cdef PyObject *found
    if files is None or files[number] is None:
        return None
    found = PyWeakref_GetObject(files[number])
    return None if found == <PyObject *>None else <Mapping>found


# --- words and mutex: for the parts of the store that are written in Python -------------------------------------------

@cython.final
cdef class Words:
    """Atomic access to the aligned native words of a mapping. Positions are bytes."""

    cdef Mapping mapping

    def __cinit__(self, Mapping mapping not None):
        self.mapping = mapping

    cdef unsigned char *word(self, Py_ssize_t at, int size) except NULL:
        if at < 0 or at + size > self.mapping.size or at % size:
            raise ValueError(f"byte {at} is not an aligned word of {size} bytes in {self.mapping.size}")
        return self.mapping.address + at

    def load(self, Py_ssize_t at):
        return load64(self.word(at, 8))

    def store(self, Py_ssize_t at, uint64_t value):
        store64(self.word(at, 8), value)

    def add(self, Py_ssize_t at, uint64_t value):
        return add64(self.word(at, 8), value)

    def replace(self, Py_ssize_t at, uint64_t expected, uint64_t desired):
        return bool(replace64(self.word(at, 8), expected, desired))

    def set_bits(self, Py_ssize_t at, uint64_t bits):
        return or64(self.word(at, 8), bits)

    def load32(self, Py_ssize_t at):
        return load32(self.word(at, 4))

    def store32(self, Py_ssize_t at, uint32_t value):
        store32(self.word(at, 4), value)

    def wait(self, Py_ssize_t at, uint32_t expected, double timeout_ms):
        cdef unsigned char *word = self.word(at, 4)
        cdef int changed
        with nogil:
            changed = futex_wait(word, expected, <int64_t>(timeout_ms * 1000000))
        return bool(changed)

    def wait_adaptively(self, Py_ssize_t at, uint32_t expected, double timeout_ms):
        cdef unsigned char *word = self.word(at, 4)
        cdef int changed
        with nogil:
            changed = futex_wait_adaptive(word, expected, <int64_t>(timeout_ms * 1000000))
        return bool(changed)

    def signal(self, Py_ssize_t at):
        cdef unsigned char *word = self.word(at, 4)
        cdef int woken
        with nogil:
            add32(word, 1)
            woken = futex_wake(word, 2147483647)
        return woken


@cython.final
cdef class RobustMutex:
    """A mutex in a mapping, for the rare paths that run Python while they hold it."""

    cdef Mapping mapping
    cdef void *at

    def __cinit__(self, Mapping mapping not None, Py_ssize_t at):
        if at < 0 or at + 64 > mapping.size or at % 64:
            raise ValueError(f"byte {at} cannot hold a mutex in {mapping.size}")
        self.mapping = mapping
        self.at = mapping.address + at

    def initialise(self):
        store64(self.at, 0)

    def try_acquire(self):
        return self._is_taken(mutex_try(self.at, self.mapping.me, 0))

    def inherit(self):
        return self._is_taken(mutex_inherit(self.at, self.mapping.me, load64(self.at)))

    cdef bint _is_taken(self, int failure) except -1:
        if failure and failure != EBUSY:
            raise OSError(failure, os.strerror(failure))
        return failure == 0

    def acquire(self, int64_t timeout_ms):
        cdef const Owner *me = self.mapping.me
        cdef int failure = mutex_try(self.at, me, 0)
        if failure == EBUSY:
            with nogil:
                failure = mutex_wait(self.at, me, timeout_ms * 1000000)
        if failure == ETIMEDOUT:
            raise StoreBusy(f"waited {timeout_ms} ms for a mutex held by process {mutex_process(self.at)}")
        if failure:
            raise OSError(failure, os.strerror(failure))

    def held(self, int64_t timeout_ms):
        return HeldMutex.__new__(HeldMutex, self, timeout_ms, False)

    def tried(self, *, bint from_dead):
        return HeldMutex.__new__(HeldMutex, self, NOT_WAITED, from_dead)

    def release(self):
        mutex_release(self.at, self.mapping.me)

    @property
    def owner(self):
        return mutex_owner(self.at)

    @property
    def process(self):
        return mutex_process(self.at)


cdef enum:
    NOT_WAITED = -1


@cython.final
@cython.no_gc
cdef class HeldMutex:
    """A mutex for the length of a ``with`` block.

    A signal handler may raise after every call of a line of Python, and before its next one. Here nothing can come
    between taking the mutex and knowing that: an exception at the end of ``__enter__`` drops this object, which releases.
    """

    cdef RobustMutex mutex
    cdef int64_t timeout_ms
    cdef bint from_dead
    cdef bint is_held

    def __cinit__(self, RobustMutex mutex not None, int64_t timeout_ms, bint from_dead):
        self.mutex = mutex
        self.timeout_ms = timeout_ms
        self.from_dead = from_dead

    def __enter__(self):
        if self.timeout_ms == NOT_WAITED:
            self.is_held = self.mutex.try_acquire() or self.from_dead and self.mutex.inherit()
        else:
            self.mutex.acquire(self.timeout_ms)
            self.is_held = True
        return self.is_held

    def __exit__(self, *_):
        self._let_go()

    def __dealloc__(self):
        self._let_go()

    cdef void _let_go(self) noexcept:
        if self.is_held:
            self.is_held = False
            mutex_release(self.mutex.at, self.mutex.mapping.me)
