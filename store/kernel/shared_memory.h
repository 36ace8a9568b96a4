/* What processes need to share words in a mapping: atomics, futexes, a mutex that outlives its owner,
 * and the named points at which a test makes a process die.
 *
 * Every word is aligned to its size and native-endian; see store/layout.py.
 */
#ifndef RMQ_SHARED_MEMORY_H
#define RMQ_SHARED_MEMORY_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* --- byte order: on-disk fields are big-endian and not aligned ------------------------------------ */

static inline int64_t get_i64(const unsigned char *at)
{
    uint64_t raw;
    memcpy(&raw, at, 8);
    return (int64_t)__builtin_bswap64(raw);
}

static inline int32_t get_i32(const unsigned char *at)
{
    uint32_t raw;
    memcpy(&raw, at, 4);
    return (int32_t)__builtin_bswap32(raw);
}

static inline int16_t get_i16(const unsigned char *at)
{
    uint16_t raw;
    memcpy(&raw, at, 2);
    return (int16_t)__builtin_bswap16(raw);
}

static inline void put_i64(unsigned char *at, int64_t value)
{
    uint64_t raw = __builtin_bswap64((uint64_t)value);
    memcpy(at, &raw, 8);
}

static inline void put_i32(unsigned char *at, int32_t value)
{
    uint32_t raw = __builtin_bswap32((uint32_t)value);
    memcpy(at, &raw, 4);
}

static inline void put_i16(unsigned char *at, int16_t value)
{
    uint16_t raw = __builtin_bswap16((uint16_t)value);
    memcpy(at, &raw, 2);
}

/* --- atomics ---------------------------------------------------------------------------------------- */

static inline uint64_t load64(const void *at) { return __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE); }
static inline void store64(void *at, uint64_t value) { __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELEASE); }
static inline uint32_t load32(const void *at) { return __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE); }
static inline void store32(void *at, uint32_t value) { __atomic_store_n((uint32_t *)at, value, __ATOMIC_RELEASE); }

/* Publishing a queue's max offset and then looking for sleepers, against arming and then looking at the max
 * offset: each side stores one word and loads the other, so both need sequential consistency. */
static inline void store64_seq(void *at, uint64_t value) { __atomic_store_n((uint64_t *)at, value, __ATOMIC_SEQ_CST); }
static inline uint64_t load64_seq(const void *at) { return __atomic_load_n((const uint64_t *)at, __ATOMIC_SEQ_CST); }
static inline uint64_t exchange64(void *at, uint64_t value)
{
    return __atomic_exchange_n((uint64_t *)at, value, __ATOMIC_SEQ_CST);
}
static inline uint64_t or64(void *at, uint64_t bits) { return __atomic_fetch_or((uint64_t *)at, bits, __ATOMIC_SEQ_CST); }
static inline uint64_t add64(void *at, uint64_t value)
{
    return __atomic_add_fetch((uint64_t *)at, value, __ATOMIC_SEQ_CST);
}
static inline uint32_t add32(void *at, uint32_t value)
{
    return __atomic_add_fetch((uint32_t *)at, value, __ATOMIC_SEQ_CST);
}
static inline int replace64(void *at, uint64_t expected, uint64_t desired)
{
    return __atomic_compare_exchange_n((uint64_t *)at, &expected, desired, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* A release store keeps what is written before it from moving behind it, not what is written after it from moving
 * before it. A kill leaves every store up to some instruction, so for a crash the order of instructions is what counts,
 * on any processor, and only the compiler has to be told. */
static inline void keep_program_order(void) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

/* The same for what will be read, far from what is being read now. */
static inline void expect_read(const void *at, uint64_t size)
{
    const unsigned char *line = (const unsigned char *)at;
    const unsigned char *end = line + size;
    for (; line < end; line += 64) __builtin_prefetch(line, 0);
}

static inline int count_bits(uint64_t word) { return __builtin_popcountll(word); }

static inline int lowest_bit(uint64_t word) { return __builtin_ctzll(word); } /* of a word that is not zero */

/* Ask for cache lines that will be written, while there is other work: another process may have them, and each would be
 * waited for by itself. */
static inline void expect_write(void *at, uint64_t size)
{
    unsigned char *line = (unsigned char *)at;
    unsigned char *end = line + (size < 2048 ? size : 2048);
    for (; line < end; line += 64) __builtin_prefetch(line, 1);
}

/* --- clocks ----------------------------------------------------------------------------------------- */

/* What the time of this process differs by from the host's: all zeros, unless it follows a clock that a test moves
 * (store/clock.py). Then clock_words points to the file of that clock. Reading costs an addition, and no branch. */
typedef struct {
    int64_t ahead_ns;          /* moved forward so far */
    int64_t extra_speed;       /* seconds that pass beyond the real one in each second, from the next two times on */
    int64_t wall_since_ns;
    int64_t boottime_since_ns;
    uint32_t moved;            /* futex: +1 when the clock was moved, and when a sleeper shall look */
} rmq_clock;

static rmq_clock no_clock;
static rmq_clock *clock_words = &no_clock;

static inline int64_t host_ns(clockid_t which)
{
    struct timespec now;
    clock_gettime(which, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t moved_ns(int64_t now, int64_t since)
{
    int64_t ahead = __atomic_load_n(&clock_words->ahead_ns, __ATOMIC_RELAXED);
    return now + ahead + (now - since) * clock_words->extra_speed;
}

static inline int64_t wall_clock_ns(void) { return moved_ns(host_ns(CLOCK_REALTIME), clock_words->wall_since_ns); }

static inline int64_t wall_clock_ms(void) { return wall_clock_ns() / 1000000; }

/* For pauses and intervals: counts suspend, never goes back while the process follows one clock. */
static inline int64_t elapsed_ns(void) { return moved_ns(host_ns(CLOCK_BOOTTIME), clock_words->boottime_since_ns); }

/* For leases and heartbeats, which tell whether a real process lives: no test moves it. One clock for all processes; counts
 * suspend; never steps. */
static inline int64_t boottime_ns(void) { return host_ns(CLOCK_BOOTTIME); }

/* --- futex ------------------------------------------------------------------------------------------ */

/* 1 when woken or the word had changed already, 0 when the time was up or a signal came. */
static inline int futex_wait(void *word, uint32_t expected, int64_t timeout_ns)
{
    struct timespec timeout = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    long result = syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, NULL, 0);
    return result == 0 || errno == EAGAIN;
}

#define SPIN_NS 50000
#define SHORT_NS 200000 /* the wait itself, and two wake-ups of idle cores */
#define PENALTY 8

#if defined(__x86_64__) || defined(__i386__)
#define relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define relax() __asm__ __volatile__("yield")
#else
#define relax() ((void)0)
#endif

static inline int64_t ns_since(const struct timespec *begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - begin->tv_sec) * 1000000000LL + (now.tv_nsec - begin->tv_nsec);
}

/* Look at the word until it changes; 0 when the time is up. */
static int spin(const uint32_t *word, uint32_t expected, const struct timespec *begin, int64_t limit_ns)
{
    do {
        for (int looks = 0; looks < 32; looks++) {
            if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != expected) return 1;
            relax();
        }
    } while (ns_since(begin) < limit_ns);
    return 0;
}

/* Whether who is waited for can run while this thread looks. As it was at the first call. */
static int has_two_processors(void)
{
    static int known = -1;
    if (known < 0) {
        cpu_set_t usable;
        known = sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) > 1;
    }
    return known;
}

/* As futex_wait; a thread whose waits are short looks at the word before it sleeps. An idle core takes as long to wake up as
 * a short wait lasts, and the one who changes the word need not wait for that either. After a look in vain the thread sleeps
 * at once, until so many waits were short again. */
static int futex_wait_adaptive(void *word, uint32_t expected, int64_t timeout_ns)
{
    static __thread int short_waits = 0;
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    int spins = short_waits > 0 && timeout_ns > SPIN_NS && has_two_processors();
    if (spins && spin(word, expected, &begin, SPIN_NS)) return 1;
    int changed = futex_wait(word, expected, timeout_ns - (spins ? SPIN_NS : 0));
    if (spins) short_waits = -PENALTY;
    else if (changed && ns_since(&begin) < SHORT_NS) short_waits++;
    else if (short_waits > 0) short_waits = 0;
    return changed;
}

static inline int futex_wake(void *word, int count)
{
    return (int)syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}

/* --- mutex ------------------------------------------------------------------------------------------ */

/* Who locks. Its number is never given again, and it keeps the byte of the lock file that has the number locked for as long
 * as any of its threads may hold a mutex: store/files/lock_owner.py. So a free byte is the death notice. Threads and
 * processes have numbers of their own in each PID namespace, and the C library's robust mutexes know owners by these. */
typedef struct {
    uint64_t number; /* 0: nobody, who may lock nothing */
    int lock_file;
} rmq_owner;

#define OWNER_BYTES ((uint64_t)1 << 32)
#define OWNER_PROCESS_BITS 22 /* the low bits of a number are the process id, as its own namespace has it: for people only */
#define MOST_OWNER (((uint64_t)1 << 62) - 1)

static const rmq_owner no_owner = {0, -1};

/* The word of a mutex is 0 while nobody holds it; otherwise the number of the owner, and in the lowest bit whether
 * somebody sleeps. A futex compares the half with that bit: an owner that looks like another one there costs a slice. */
#define SLEEPERS 1
#define MUTEX_SLICE_NS 20000000
#define MUTEX_ORPHANED_AT 48 /* a word behind the mutex, on its cache line */

static inline void *futex_of(void *mutex)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return (char *)mutex + 4;
#else
    return mutex;
#endif
}

static inline uint64_t mutex_owner(const void *at) { return load64(at) >> 1; }

static inline int mutex_process(const void *at) { return (int)(mutex_owner(at) & ((1 << OWNER_PROCESS_BITS) - 1)); }

static inline int byte_set(int lock_file, int64_t byte, short kind)
{
    struct flock wanted = {.l_type = kind, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(lock_file, F_OFD_SETLK, &wanted) == 0 ? 0 : errno;
}

static inline int byte_unlock(int lock_file, int64_t byte) { return byte_set(lock_file, byte, F_UNLCK); }

/* Lock the byte of a number. 0, or an errno: EAGAIN when another owner has it. */
static inline int owner_enter(int lock_file, uint64_t number)
{
    if (number == 0 || number > MOST_OWNER) return EINVAL;
    return byte_set(lock_file, (int64_t)(OWNER_BYTES + number), F_WRLCK);
}

/* On doubt it lives. A number that no owner can have was damaged, and belongs to nobody. */
static int is_dead_owner(const rmq_owner *me, uint64_t number)
{
    struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(OWNER_BYTES + number), .l_len = 1};
    if (number == me->number) return 0; /* another thread: a handle never sees its own locks */
    if (number == 0 || number > MOST_OWNER) return 1;
    return fcntl(me->lock_file, F_OFD_GETLK, &asked) == 0 && asked.l_type == F_UNLCK;
}

/* Take the mutex from an owner that died with it: 0, or EBUSY while the owner lives. The words that the mutex guards tell
 * what was under way; the word behind it says that somebody has to look. A death in between leaves another dead owner. */
static int mutex_inherit(void *at, const rmq_owner *me, uint64_t seen)
{
    if (!me->number) return EPERM;
    if (!seen || !is_dead_owner(me, seen >> 1) || !replace64(at, seen, me->number << 1 | SLEEPERS)) return EBUSY;
    store64((char *)at + MUTEX_ORPHANED_AT, 1);
    return 0;
}

/* Tries for a few microseconds, which is longer than any critical section here. Never sleeps, and never looks whether the
 * owner lives. Looks at the word before each attempt, because an attempt takes the cache line away from the holder, who
 * needs it to let go. */
static inline int mutex_try(void *at, const rmq_owner *me, int spins)
{
    if (__builtin_expect(!me->number, 0)) return EPERM;
    while (!replace64(at, 0, me->number << 1)) {
        do {
            if (spins-- <= 0) return EBUSY;
            relax();
        } while (__atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED));
    }
    return 0;
}

/* Waits in slices: who was killed can neither wake a sleeper nor say that it is dead, so sleepers look by themselves. */
static int mutex_wait(void *at, const rmq_owner *me, int64_t timeout_ns)
{
    int failure = mutex_try(at, me, 30);
    while (failure == EBUSY) {
        uint64_t seen = load64(at);
        int64_t step = timeout_ns < MUTEX_SLICE_NS ? timeout_ns : MUTEX_SLICE_NS;
        if (!seen) {
            failure = replace64(at, 0, me->number << 1 | SLEEPERS) ? 0 : EBUSY; /* others may sleep */
            continue;
        }
        if (step > 0) {
            struct timespec begin;
            if (!(seen & SLEEPERS) && !replace64(at, seen, seen | SLEEPERS)) continue;
            seen |= SLEEPERS;
            clock_gettime(CLOCK_MONOTONIC, &begin);
            futex_wait(futex_of(at), (uint32_t)seen, step);
            int64_t passed = ns_since(&begin);
            timeout_ns -= passed < step ? passed : step; /* a waiter that stood still itself has not waited */
        }
        if (load64(at) == seen) failure = mutex_inherit(at, me, seen);
        if (failure == EBUSY && timeout_ns <= 0 && load64(at)) return ETIMEDOUT;
    }
    return failure;
}

static inline void mutex_release(void *at, const rmq_owner *me)
{
    if (!me->number) return; /* a forked child, in a copy of a section of its parent's */
    if (exchange64(at, 0) & SLEEPERS) futex_wake(futex_of(at), 1);
}

/* --- crash points ----------------------------------------------------------------------------------- */

static int armed_point = 0;   /* 0: none, and the only cost is this comparison */
static int armed_signal = 0;
static long armed_passes = 0; /* how often the point is passed unharmed first */

static inline void reach(int point)
{
    if (__builtin_expect(armed_point == point, 0)) {
        if (armed_passes-- == 0) kill(getpid(), armed_signal);
    }
}

#endif
