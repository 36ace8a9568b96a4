# --- locks: what a byte is held by, until the block ends --------------------------------------------------------------
# A signal handler may raise behind every call in a line of Python, and at the begin of every function in Python. So locks
# are let go here, where none can run, and noted before they are taken. Python 3.14 looks for signals once more before a
# ``with`` block begins: the exception drops the object, and that lets go, too.

from functools import wraps as _wraps
from rmqclient.store.native_threads import threading as _threading
from time import monotonic as _monotonic


@cython.final
@cython.no_gc
cdef class HeldByte:
    """A byte of a lock file for the length of a ``with`` block; see :meth:`rmqclient.store.files.file_lock.LockFile.held`.

    ``section`` keeps other threads of the process out: a handle never excludes itself.
    """

    cdef object lock            # the LockFile
    cdef object file
    cdef set own                # bytes that the handle holds
    cdef object section
    cdef int64_t byte
    cdef double timeout_s
    cdef bint has_section
    cdef bint may_hold

    def __cinit__(self, lock not None, file not None, set own not None, section not None, int64_t byte, double timeout_s):
        self.lock, self.file, self.own, self.section = lock, file, own, section
        self.byte = byte
        self.timeout_s = timeout_s

    def __enter__(self):
        cdef double until = _monotonic() + self.timeout_s
        self.has_section = self.section.acquire(True, max(self.timeout_s, 0))
        if not self.has_section:
            raise self.lock.busy_here(self.byte, self.timeout_s)
        try:
            self.may_hold = True
            self.lock.wait_exclusive(self.byte, until - _monotonic())
            self.lock.check_in_place()
        except BaseException:
            self._let_go()
            raise

    def __exit__(self, *_):
        self._let_go()

    def __dealloc__(self):
        self._let_go()

    cdef void _let_go(self) noexcept:
        if self.may_hold:
            self.may_hold = False
            self.own.discard(self.byte)
            if not self.file.closed:
                byte_unlock(self.file.fileno(), self.byte)
        if self.has_section:
            self.has_section = False
            self.section.release()


@cython.final
@cython.no_gc
cdef class Scope:
    """The context manager of a generator that holds locks while it yields; see :func:`scope`."""

    cdef object generator

    def __cinit__(self, generator):
        self.generator = generator

    def __enter__(self):
        return next(self.generator)

    def __exit__(self, kind, error, trace):
        if kind is None:
            if next(self.generator, self) is not self:
                raise RuntimeError(f"{self.generator} yields twice")
            return False
        try:
            self.generator.throw(error)
        except StopIteration as stop:
            return stop is not error
        except BaseException as raised:
            if raised is not error:
                raise
            raised.__traceback__ = trace
            return False
        raise RuntimeError(f"{self.generator} yields twice")


def scope(function):
    @_wraps(function)
    def enter(*arguments, **named):
        return Scope.__new__(Scope, function(*arguments, **named))
    return enter


class Condition(_threading.Condition):
    def __enter__(self):
        return self._lock.__enter__()

    def __exit__(self, *raised):
        return self._lock.__exit__(*raised)
