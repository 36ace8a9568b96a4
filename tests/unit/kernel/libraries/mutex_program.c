/* The robust mutex of the kernel under another C library, or by its older calls: each line printed is a promise kept. */
#include <stdio.h>
#include <sys/wait.h>

#include "shared_memory.h"

static void say(const char *what, int holds)
{
    printf("%s: %s\n", what, holds ? "yes" : "no");
    fflush(stdout);
}

static int as_child(void *mutex, int leaves_it_locked)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        int failure = mutex_wait(mutex, 50 * 1000000);
        if (!failure && !leaves_it_locked) mutex_release(mutex);
        _exit(failure);
    }
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

int main(void)
{
    char *mutex = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    say("made", mutex_initialise(mutex) == 0);
    say("free", MUTEX_WORD((pthread_mutex_t *)mutex) == 0);
    say("taken at once", mutex_try(mutex, 10) == 0);
    say("not free", MUTEX_WORD((pthread_mutex_t *)mutex) != 0);
    say("owned by this thread", mutex_owner(mutex) == (int)syscall(SYS_gettid));
    say("another process waits to the end of its time", as_child(mutex, 0) == ETIMEDOUT);
    mutex_release(mutex);
    say("another process gets it then", as_child(mutex, 0) == 0);
    say("a process dies with it", as_child(mutex, 1) == 0);
    say("handed over, and said so", mutex_wait(mutex, 1000000000) == 0 && load64(mutex + MUTEX_ORPHANED_AT) == 1);
    mutex_release(mutex);
    say("usable again", as_child(mutex, 0) == 0);
    return 0;
}
