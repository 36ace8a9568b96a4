/* The mutex of the kernel under another C library: each line printed is a promise kept. The program gets a lock file. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "shared_memory.h"

static const char *lock_file;

static void say(const char *what, int holds)
{
    printf("%s: %s\n", what, holds ? "yes" : "no");
    fflush(stdout);
}

static rmq_owner enter(uint64_t number)
{
    rmq_owner owner = {number, open(lock_file, O_RDWR | O_CLOEXEC)};
    if (owner_enter(owner.lock_file, number)) exit(3);
    return owner;
}

static int as_child(void *mutex, uint64_t number, int leaves_it_locked)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        rmq_owner me = enter(number);
        int failure = mutex_wait(mutex, &me, 50 * 1000000);
        if (!failure && !leaves_it_locked) mutex_release(mutex, &me);
        _exit(failure);
    }
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

int main(int count, char **arguments)
{
    char *mutex = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    lock_file = arguments[count - 1];
    rmq_owner me = enter(7), other = enter(8);
    say("free", mutex_owner(mutex) == 0);
    say("taken at once", mutex_try(mutex, &me, 10) == 0);
    say("owned", mutex_owner(mutex) == 7);
    say("no number twice", owner_enter(other.lock_file, 7) == EAGAIN);
    say("another opening waits to the end of its time", mutex_wait(mutex, &other, 50 * 1000000) == ETIMEDOUT);
    say("another process waits to the end of its time", as_child(mutex, 9, 0) == ETIMEDOUT);
    mutex_release(mutex, &me);
    say("another process gets it then", as_child(mutex, 10, 0) == 0);
    say("a process dies with it", as_child(mutex, 11, 1) == 0);
    say("who only tries does not get it", mutex_try(mutex, &me, 10) == EBUSY);
    say("who waits inherits it, and says so", mutex_wait(mutex, &me, 1000000000) == 0 && load64(mutex + MUTEX_ORPHANED_AT) == 1);
    mutex_release(mutex, &me);
    say("usable again", as_child(mutex, 12, 0) == 0);
    store64(mutex, UINT64_MAX);
    say("a damaged word is nobody's", mutex_wait(mutex, &me, 0) == 0);
    say("nobody locks nothing", mutex_wait(mutex, &no_owner, 0) == EPERM);
    return 0;
}
