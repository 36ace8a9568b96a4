# --- the allocator: from which heap the threads of a process take memory ------------------------------------------------

cdef extern from *:
    """
    #include <malloc.h>
    static void one_heap(void) {
    #ifdef M_ARENA_MAX  /* glibc */
        mallopt(M_ARENA_MAX, 1);
    #endif
    }
    """
    void one_heap()


def use_one_heap():
    one_heap()
