/* Threads and processes begin when it is their turn, and are waited for without holding up time. */
#include "preload/self.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Between two looks whether a thread or a process has ended. */
#define POLL_FIRST_NS UINT64_C(100000)
#define POLL_LAST_NS UINT64_C(10000000)

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

struct birth {
    void *(*body)(void *);
    void *argument;
    int taker;
};

static pthread_key_t ending;
static pthread_once_t ending_once = PTHREAD_ONCE_INIT;

static void end_thread(void *anything)
{
    (void)anything;
    self_end();
}

static void make_key(void)
{
    pthread_key_create(&ending, end_thread);
}

static void *begin_thread(void *argument)
{
    struct birth birth = *(struct birth *)argument;
    free(argument);
    pthread_once(&ending_once, make_key);
    pthread_setspecific(ending, &ending); /* anything: without a value nobody is called */
    self_begin(birth.taker);
    return birth.body(birth.argument);
}

OVERRIDE int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                            void *(*body)(void *), void *argument)
{
    create_function *real = (create_function *)self_next("pthread_create");
    struct birth *birth = self_clock != NULL ? malloc(sizeof *birth) : NULL;
    if (birth == NULL)
        return real(thread, attributes, body, argument);
    *birth = (struct birth){body, argument, self_reserve()};
    int taker = birth->taker;
    int error = real(thread, attributes, begin_thread, birth);
    if (error != 0) {
        self_unreserve(taker);
        free(birth);
    }
    return error;
}

static void poll_later(uint64_t *pause)
{
    self_sleep_until(simclock_peek(self_clock) + *pause);
    *pause = *pause * 2 < POLL_LAST_NS ? *pause * 2 : POLL_LAST_NS;
}

OVERRIDE int pthread_join(pthread_t thread, void **result)
{
    int (*real)(pthread_t, void **) = (int (*)(pthread_t, void **))self_next("pthread_join");
    if (self_clock == NULL)
        return real(thread, result);
    int error;
    uint64_t pause = POLL_FIRST_NS;
    while ((error = pthread_tryjoin_np(thread, result)) == EBUSY)
        poll_later(&pause);
    return error;
}

OVERRIDE pid_t fork(void)
{
    pid_t (*real)(void) = (pid_t (*)(void))self_next("fork");
    int taker = self_reserve();
    pid_t child = real();
    if (child == 0)
        self_begin(taker);
    else if (child < 0)
        self_unreserve(taker);
    else if (taker >= 0)
        simclock_become(self_clock, taker, child, child);
    return child;
}

OVERRIDE pid_t wait4(pid_t child, int *status, int options, struct rusage *usage)
{
    int at_once = self_clock != NULL ? WNOHANG : 0;
    for (uint64_t pause = POLL_FIRST_NS;; poll_later(&pause)) {
        pid_t found = (pid_t)syscall(SYS_wait4, child, status, options | at_once, usage);
        if (found != 0 || (options & WNOHANG) != 0)
            return found;
    }
}

OVERRIDE int waitid(idtype_t kind, id_t child, siginfo_t *out, int options)
{
    int at_once = self_clock != NULL ? WNOHANG : 0;
    siginfo_t found = {0};
    for (uint64_t pause = POLL_FIRST_NS;; poll_later(&pause)) {
        int result = (int)syscall(SYS_waitid, kind, child, &found, options | at_once, NULL);
        if (result == 0 && found.si_pid == 0 && (options & WNOHANG) == 0)
            continue;
        if (out != NULL)
            *out = found;
        return result;
    }
}

OVERRIDE pid_t wait3(int *status, int options, struct rusage *usage)
{
    return wait4(-1, status, options, usage);
}

OVERRIDE pid_t waitpid(pid_t child, int *status, int options)
{
    return wait4(child, status, options, NULL);
}

OVERRIDE pid_t wait(int *status)
{
    return wait4(-1, status, 0, NULL);
}

/* Without the C library's way out, on which we would be called. */
OVERRIDE void _exit(int status)
{
    self_end();
    for (;;)
        syscall(SYS_exit_group, status);
}

OVERRIDE void _Exit(int status)
{
    _exit(status);
}
