#include "manager/loop.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MILLISECOND 1000000u
#define SECOND 1000000000u

enum {
    LOOK_MS = 10,      /* of a simulation, where nothing wakes this thread for a descriptor */
    RINGS_PER_MS = 20, /* more are not listened to */
    MUTED_MS = 100,
    FIFO_PRIORITY = 1,
};

/* By the system call: a clock that is preloaded is none of this thread's. */
static uint64_t real_now(void)
{
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static void real_wake(_Atomic(uint32_t) *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

const struct vcuda_world loop_real_world = {.now = real_now, .wake = real_wake};

int loop_watch(struct arbiter *self, int descriptor, void *tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = tag};
    return epoll_ctl(self->epoll, EPOLL_CTL_ADD, descriptor, &event) == 0 ? 0 : -errno;
}

void loop_unwatch(struct arbiter *self, int descriptor)
{
    epoll_ctl(self->epoll, EPOLL_CTL_DEL, descriptor, NULL);
}

void loop_free_process(struct arbiter *self, struct process *process)
{
    if (process->pidfd >= 0) {
        loop_unwatch(self, process->pidfd);
        close(process->pidfd);
    }
    free(process);
}

void loop_remove_process(struct arbiter *self, struct arbiter_container *container,
                         struct process **link)
{
    struct process *process = *link;
    gpu_process_goes(container, process, self->world->now());
    *link = process->next;
    loop_free_process(self, process);
    gpu_mark_due(container);
}

static void mute(struct arbiter *self, struct arbiter_container *container, uint64_t now)
{
    loop_unwatch(self, container->ring);
    container->watched = false;
    container->muted_until = now + MUTED_MS * MILLISECOND;
}

static void read_ring(struct arbiter *self, struct arbiter_container *container, uint64_t now)
{
    char bytes[4096];
    ssize_t got = read(container->ring, bytes, sizeof bytes);
    gpu_mark_due(container);
    if (now - container->rings_since >= MILLISECOND) {
        container->rings_since = now;
        container->rings = 0;
    }
    if (++container->rings > RINGS_PER_MS || got == 0 || (got < 0 && errno != EAGAIN))
        mute(self, container, now);
}

/* A process is known by its address alone: which container's it is, is looked up. */
static void note_death(struct arbiter *self, const void *tag)
{
    for (struct arbiter_container *one = self->containers; one != NULL; one = one->next)
        for (struct process **link = &one->processes; *link != NULL; link = &(*link)->next)
            if (*link == tag) {
                loop_remove_process(self, one, link);
                return;
            }
}

static struct arbiter_container *container_of(struct arbiter *self, const void *tag)
{
    struct arbiter_container *one = self->containers;
    while (one != NULL && one != tag)
        one = one->next;
    return one;
}

static void gather(struct arbiter *self, uint64_t now)
{
    enum { AT_ONCE = 64 };
    struct epoll_event events[AT_ONCE];
    int count = epoll_wait(self->epoll, events, AT_ONCE, 0);
    for (int i = 0; i < count; i++) {
        void *tag = events[i].data.ptr;
        struct arbiter_container *container = container_of(self, tag);
        if (tag == &self->bell) {
            uint64_t times;
            ssize_t got = read(self->bell, &times, sizeof times);
            (void)got; /* it may have been set again */
        } else if (container != NULL) {
            read_ring(self, container, now);
        } else {
            note_death(self, tag);
        }
    }
}

/* Those that ring too often are read each millisecond, and listened to again later. A pipe that
 * no process can write any more, and an empty container's, are only listened to again. */
static uint64_t look_at_muted(struct arbiter *self, uint64_t now, uint64_t next)
{
    for (struct arbiter_container *one = self->containers; one != NULL; one = one->next) {
        if (one->watched)
            continue;
        if (one->muted_until <= now) {
            one->watched = loop_watch(self, one->ring, one) == 0;
            one->muted_until = now + MUTED_MS * MILLISECOND;
        }
        uint64_t again = one->muted_until;
        if (one->rings > RINGS_PER_MS && one->processes != NULL) {
            if (one->muted_look <= now) {
                gpu_mark_due(one);
                one->muted_look = now + MILLISECOND;
            }
            again = one->muted_look;
        }
        if (again < next)
            next = again;
    }
    return next;
}

static bool is_ganged(const struct gpu *gpu)
{
    for (int at = 0; at < gpu->turns.count; at++)
        if (gpu->turns.members[at].gang)
            return true;
    return false;
}

/* GPUs that gangs have are looked at together. Returns when to look again. */
static uint64_t look(struct arbiter *self, uint64_t now)
{
    uint64_t next = look_at_muted(self, now, UINT64_MAX);
    const struct turns_gang *gangs = gpu_gangs(self->containers, now);
    struct gpu *ganged[ARBITER_GPUS];
    unsigned count = 0;
    bool due = false;
    for (uint32_t at = 0; at < ARBITER_GPUS; at++) {
        struct gpu *gpu = self->gpus[at];
        if (gpu == NULL)
            continue;
        if (gangs != NULL && is_ganged(gpu)) {
            ganged[count++] = gpu;
            due |= gpu->next <= now;
        } else if (gpu->next <= now) {
            self->looks++;
            gpu_step(&gpu, 1, NULL, self->world, now);
        }
    }
    self->looks += due;
    if (due)
        gpu_step(ganged, count, gangs, self->world, now);
    for (uint32_t at = 0; at < ARBITER_GPUS; at++)
        if (self->gpus[at] != NULL && self->gpus[at]->next < next)
            next = self->gpus[at]->next;
    return next;
}

static void sleep_until(struct arbiter *self, uint64_t next)
{
    if (self->simulated) {
        uint64_t latest = self->world->now() + LOOK_MS * MILLISECOND;
        self->world->wait(NULL, 0, next < latest ? next : latest);
        return;
    }
    uint64_t now = self->world->now(), left = next > now ? next - now : 0;
    struct timespec longest = {(time_t)(left / SECOND), (long)(left % SECOND)};
    struct pollfd ready = {.fd = self->epoll, .events = POLLIN};
    ppoll(&ready, 1, next == UINT64_MAX ? NULL : &longest, NULL);
}

void *loop_run(void *arbiter)
{
    struct arbiter *self = arbiter;
    struct sched_param priority = {.sched_priority = FIFO_PRIORITY};
    prctl(PR_SET_NAME, "arbiter");
    prctl(PR_SET_TIMERSLACK, 1);
    pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority); /* where it is allowed */
    for (;;) {
        pthread_mutex_lock(&self->lock);
        bool stopping = self->stopping;
        uint64_t now = self->world->now();
        gather(self, now);
        uint64_t next = look(self, now);
        pthread_mutex_unlock(&self->lock);
        if (stopping)
            return NULL;
        sleep_until(self, next);
    }
}
