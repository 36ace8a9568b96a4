/* A wall clock that a test can set. Loaded before the C library (LD_PRELOAD) it adds the milliseconds in a shared file,
   named by WALL_CLOCK, to CLOCK_REALTIME. Other clocks are left alone, as they are by settimeofday. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int (*system_clock)(clockid_t, struct timespec *);
static volatile int64_t *ahead_ms;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("WALL_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    system_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (fd >= 0) {
        void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
        if (mapped != MAP_FAILED) ahead_ms = mapped;
        close(fd);
    }
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed;
    if (system_clock == NULL) begin(); /* somebody else's constructor came first */
    failed = system_clock(clock, now);
    if (!failed && clock == CLOCK_REALTIME && ahead_ms != NULL) {
        int64_t ns = now->tv_nsec + *ahead_ms % 1000 * 1000000;
        now->tv_sec += *ahead_ms / 1000 + (ns >= 1000000000) - (ns < 0);
        now->tv_nsec = ns - (ns >= 1000000000) * 1000000000L + (ns < 0) * 1000000000L;
    }
    return failed;
}
