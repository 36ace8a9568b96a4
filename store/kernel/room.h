/* Stores that find no room: what happens instead of SIGBUS on a full disk.
 *
 * A store into a mapped page needs a new block if the old one is shared with a clone or a snapshot. On a full disk the
 * kernel says so by SIGBUS. Mappings on file systems that can share blocks are watched here, and the handler
 *
 *   1. gives up the reserve, a file that holds room for what all processes share, and takes that room at once;
 *   2. returns to can_store(), if that asked: the append is then refused before it has changed anything;
 *   3. waits for room otherwise: nobody could undo a store in the midst of something else. Blocks that were freed can
 *      be had again when the file system has written that, which it is asked for every second.
 *
 * Every other SIGBUS is passed on to the handler before: that of other mappings, of a file that was cut, of a disk that
 * failed. On file systems that share nothing no handler is installed.
 */
#ifndef RMQ_ROOM_H
#define RMQ_ROOM_H

#include <fcntl.h>
#include <setjmp.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "shared_memory.h"

enum {
    WATCHED_MAPPINGS = 1 << 14, /* more of them are not watched */
    LOOK_AGAIN_MS = 20,
    LOOKS_A_SYNC = 50,          /* after so many the file system is asked to write what it has */
    SYNCS_WITH_ROOM = 30,       /* a store that fails after so many beside free blocks has another reason */
    LEAST_FREE_BYTES = 32 << 20 /* below, a file system may need the blocks for itself, or have none where it wants them */
};

typedef struct {
    unsigned char *volatile begin; /* NULL: not in use */
    size_t size;
    const char *path;              /* of the file; lives as long as the mapping */
    const char *volatile reserve;  /* path of the reserve, for the runtime file; or NULL */
} Watched;

static Watched watched[WATCHED_MAPPINGS];
static int watched_end;   /* no mapping stands there or behind */
static int watched_count;
static struct sigaction before_us;
static __thread sigjmp_buf *volatile asking;
static __thread volatile int passing_on;

static int can_share_blocks(int fd)
{
    struct statfs about;
    if (fstatfs(fd, &about)) return 0;
    switch ((unsigned long)about.f_type & 0xFFFFFFFFul) {
    case 0x58465342ul: /* xfs */
    case 0x9123683Eul: /* btrfs */
    case 0xCA451A4Eul: /* bcachefs */
    case 0x794C7630ul: /* overlayfs, over any of them */
        return 1;
    }
    return 0;
}

static Watched *watched_at(const unsigned char *address)
{
    for (int number = 0; number < watched_end; number++) {
        Watched *one = &watched[number];
        unsigned char *begin = one->begin;
        if (begin != NULL && begin <= address && address < begin + one->size) return one;
    }
    return NULL;
}

static int has_free_blocks(const char *path)
{
    struct statfs about;
    return statfs(path, &about) != 0 || (uint64_t)about.f_bavail * (uint64_t)about.f_bsize >= LEAST_FREE_BYTES;
}

/* Let the file system write what it has: blocks that were freed can be had again only then, on btrfs after 30 seconds
 * otherwise. Returns 0 if the disk fails. */
static int write_all(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), is_done;
    if (fd < 0) return 1;
    is_done = syncfs(fd) == 0 || (errno != EIO && errno != EROFS);
    close(fd);
    return is_done;
}

/* Whether the file ends before a page of its mapping. */
static int was_cut(const Watched *one, const unsigned char *page)
{
    struct stat status;
    return stat(one->path, &status) == 0 && status.st_size <= page - one->begin;
}

static int get_block(unsigned char *page) { return madvise(page, 4096, MADV_POPULATE_WRITE) == 0; }

/* Let the runtime file have the room that is held for it. */
static void give_up_reserve(Watched *one)
{
    struct stat status;
    if (one->reserve == NULL || stat(one->reserve, &status) || status.st_size == 0) return;
    if (truncate(one->reserve, 0) == 0) madvise(one->begin, one->size, MADV_POPULATE_WRITE);
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    int was_raised = info->si_code <= 0; /* by a program, as faulthandler does when it is done */
    if ((before_us.sa_flags & SA_SIGINFO) == 0
        && (before_us.sa_handler == SIG_DFL || before_us.sa_handler == SIG_IGN || (was_raised && passing_on))) {
        signal(number, SIG_DFL); /* the store is tried again, and ends the process */
        if (was_raised) raise(number);
        return;
    }
    passing_on++;
    if (before_us.sa_flags & SA_SIGINFO)
        before_us.sa_sigaction(number, info, context);
    else
        before_us.sa_handler(number);
    passing_on--;
}

static void on_no_room(int number, siginfo_t *info, void *context)
{
    int failure = errno, looks = 0, syncs = 0;
    unsigned char *page = (unsigned char *)((uintptr_t)info->si_addr & ~(uintptr_t)4095);
    Watched *one = info->si_code == BUS_ADRERR ? watched_at(info->si_addr) : NULL;
    while (one != NULL && syncs < SYNCS_WITH_ROOM && !was_cut(one, page)) {
        if (get_block(page)) {
            errno = failure;
            return;
        }
        if (errno != EFAULT) break; /* a kernel before 5.14 cannot tell */
        give_up_reserve(one);
        if (get_block(page)) continue;
        if (asking != NULL) siglongjmp(*asking, 1);
        if (++looks % LOOKS_A_SYNC == 0) {
            syncs += has_free_blocks(one->path);
            if (!write_all(one->path)) break;
        }
        nanosleep(&(struct timespec){0, LOOK_AGAIN_MS * 1000000}, NULL);
    }
    errno = failure;
    pass_on(number, info, context);
}

/* Become the first to hear of SIGBUS, again if somebody came before us meanwhile. */
static void listen_for_no_room(void)
{
    struct sigaction ours, found;
    if (sigaction(SIGBUS, NULL, &found) || ((found.sa_flags & SA_SIGINFO) && found.sa_sigaction == on_no_room)) return;
    before_us = found;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_no_room;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&ours.sa_mask);
    sigaction(SIGBUS, &ours, NULL);
}

/* Watch a mapping. Returns its number, or -1. The caller has the GIL, as for unwatch(). */
static int watch(void *begin, size_t size, const char *path)
{
    int number = 0;
    while (number < WATCHED_MAPPINGS && watched[number].begin != NULL) number++;
    if (number == WATCHED_MAPPINGS) return -1;
    listen_for_no_room();
    watched[number].size = size;
    watched[number].path = path;
    watched[number].reserve = NULL;
    watched[number].begin = begin;
    if (number >= watched_end) watched_end = number + 1;
    watched_count++;
    return number;
}

static void unwatch(int number)
{
    if (number < 0) return;
    watched[number].begin = NULL;
    watched_count--;
}

/* Whether bytes can be stored now. They keep their value, whoever else stores there. */
static __attribute__((noinline)) int can_store_watched(unsigned char *at, size_t size)
{
    unsigned char *end = at + size;
    sigjmp_buf here;
    if (sigsetjmp(here, 0)) {
        asking = NULL;
        return 0;
    }
    asking = &here;
    while (at < end) {
        unsigned char value = __atomic_load_n(at, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(at, &value, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
        at = (unsigned char *)(((uintptr_t)at | 4095) + 1);
    }
    asking = NULL;
    return 1;
}

static inline int can_store(void *at, size_t size)
{
    return __builtin_expect(watched_count == 0, 1) || can_store_watched((unsigned char *)at, size);
}

#endif
