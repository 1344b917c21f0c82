#include "crew.h"
#include "moment.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_EVERY_NS UINT64_C(1000000)

static void fail(const char *what)
{
    fprintf(stderr, "cuda-work: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* A member does not outlive the first. */
static void follow(pid_t first)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != first)
        _exit(1);
}

unsigned crew_start(struct crew **out, unsigned size)
{
    struct crew *crew = mmap(NULL, sizeof *crew, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (crew == MAP_FAILED)
        fail("no memory");
    crew->size = size;
    for (unsigned phase = 0; phase < PHASES_AT_MOST; phase++)
        crew->meetings[phase].communicator = (uint32_t)moment_now() + phase;
    *out = crew;
    pid_t first = getpid();
    for (unsigned member = 1; member < size; member++) {
        pid_t child = fork();
        if (child < 0)
            fail("cannot start a process");
        if (child == 0) {
            follow(first);
            return member;
        }
    }
    return 0;
}

/* Take one that has ended, if there is one: whether there was. */
static int take_ended(void)
{
    int status;
    pid_t child = waitpid(-1, &status, WNOHANG);
    if (child > 0 && status != 0) {
        fprintf(stderr, "cuda-work: one of its processes failed\n");
        exit(1);
    }
    return child > 0;
}

uint64_t crew_meet(struct crew *crew, unsigned member, uint64_t start)
{
    if (atomic_fetch_add_explicit(&crew->ready, 1, memory_order_acq_rel) + 1 == crew->size) {
        uint64_t now = moment_now();
        /* pairs with the load below */
        atomic_store_explicit(&crew->begin, start > now ? start : now, memory_order_release);
    }
    uint64_t begin;
    while ((begin = atomic_load_explicit(&crew->begin, memory_order_acquire)) == 0) {
        if (member == 0)
            take_ended();
        moment_sleep(LOOK_EVERY_NS);
    }
    return begin;
}

void crew_finish(struct crew *crew)
{
    for (unsigned left = crew->size - 1; left > 0;) {
        if (take_ended())
            left--;
        else
            moment_sleep(LOOK_EVERY_NS);
    }
}
