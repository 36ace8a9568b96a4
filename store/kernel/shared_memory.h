/* What processes need to share words in a mapping: atomics, a robust mutex waited for in slices, futexes,
 * and the named points at which a test makes a process die.
 *
 * Every word is aligned to its size and native-endian; see store/layout.py.
 */
#ifndef RMQ_SHARED_MEMORY_H
#define RMQ_SHARED_MEMORY_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
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

/* --- robust mutex ----------------------------------------------------------------------------------- */

/* What the interface of the C library does not tell: the word that is 0 while nobody holds a mutex, and the thread id of its
 * owner. The two libraries lay a mutex out differently, so processes of both cannot share one: store/layout.py. */
#ifdef __GLIBC__
#define MUTEX_WORD(mutex) ((mutex)->__data.__lock)
#define MUTEX_OWNER(mutex) ((mutex)->__data.__owner)
#else /* musl, where one word is both */
#define MUTEX_WORD(mutex) ((mutex)->__u.__vi[1])
#define MUTEX_OWNER(mutex) ((mutex)->__u.__vi[1] & 0x3fffffff)
#endif

/* The clock of a wait with an end. Older libraries know only the wall clock: if that is set back meanwhile, a wait that nobody
 * ends by releasing the mutex lasts longer by as much. */
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 30) && !defined(RMQ_WALL_CLOCK_WAITS)
#define MUTEX_CLOCK CLOCK_MONOTONIC
#define mutex_until(mutex, until) pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, until)
#else
#define MUTEX_CLOCK CLOCK_REALTIME
#define mutex_until(mutex, until) pthread_mutex_timedlock(mutex, until)
#endif

static int mutex_initialise(void *at)
{
    pthread_mutexattr_t attributes;
    int failure = pthread_mutexattr_init(&attributes);
    if (!failure) failure = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (!failure) failure = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (!failure) failure = pthread_mutex_init((pthread_mutex_t *)at, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return failure;
}

#define MUTEX_ORPHANED_AT 48 /* a word behind the mutex, on its cache line */
_Static_assert(sizeof(pthread_mutex_t) <= MUTEX_ORPHANED_AT, "the word lies behind the mutex");

/* The kernel handed over a dead owner's mutex: usable again, and the words it guards tell what was under way. The word
 * behind it says that somebody has to look. */
static inline int mutex_settle(pthread_mutex_t *mutex, int failure)
{
    if (failure != EOWNERDEAD) return failure;
    store64((char *)mutex + MUTEX_ORPHANED_AT, 1);
    return pthread_mutex_consistent(mutex);
}

/* Tries for a few microseconds, which is longer than any critical section here. Never sleeps. Looks at the lock word
 * before each attempt, because an attempt takes the cache line away from the holder, who needs it to let go. */
static inline int mutex_try(void *at, int spins)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)at;
    int failure = pthread_mutex_trylock(mutex);
    while (failure == EBUSY && spins > 0) {
        while (__atomic_load_n(&MUTEX_WORD(mutex), __ATOMIC_RELAXED) && spins-- > 0) {
#if defined(__x86_64__) || defined(__i386__)
            __builtin_ia32_pause();
#endif
        }
        failure = pthread_mutex_trylock(mutex);
    }
    return mutex_settle(mutex, failure);
}

/* Waits in slices of 20 ms: a waiter that is killed after the kernel chose it as the next owner can leave the
 * others asleep on a free mutex; those that look again by themselves get on. */
static int mutex_wait(void *at, int64_t timeout_ns)
{
    const int64_t slice = 20 * 1000000;
    pthread_mutex_t *mutex = (pthread_mutex_t *)at;
    int failure = mutex_try(at, 30);
    while (failure == EBUSY || failure == ETIMEDOUT) {
        struct timespec until;
        int64_t step = timeout_ns < slice ? timeout_ns : slice;
        if (step <= 0) return ETIMEDOUT;
        clock_gettime(MUTEX_CLOCK, &until);
        until.tv_nsec += step % 1000000000;
        until.tv_sec += step / 1000000000 + until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        failure = mutex_settle(mutex, mutex_until(mutex, &until));
        timeout_ns -= step;
    }
    return failure;
}

static inline void mutex_release(void *at) { pthread_mutex_unlock((pthread_mutex_t *)at); }

static inline int mutex_owner(const void *at) { return MUTEX_OWNER((const pthread_mutex_t *)at); }

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
