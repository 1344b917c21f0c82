#include "manager/arbiter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "manager/gpu.h"

#define MILLISECOND 1000000u
#define SECOND 1000000000u

enum {
    BEAT_MS = 20,      /* VCUDA_LEASE_MS is 50 */
    LOOK_MS = 10,      /* of a simulation, where nothing wakes this thread for a descriptor */
    RINGS_PER_MS = 20, /* more are not listened to */
    MUTED_MS = 100,
    FIFO_PRIORITY = 1,
};

struct arbiter {
    const struct vcuda_world *world;
    bool simulated;
    pthread_t thread;
    pthread_mutex_t lock; /* all below */
    bool stopping;
    int epoll, bell, timer;
    uint64_t beat_at;
    struct gpu *gpus[ARBITER_GPUS]; /* NULL: none of its containers has joined yet */
    struct arbiter_container *containers;
};

/* ---- the real world ---- */

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

static const struct vcuda_world real_world = {.now = real_now, .wake = real_wake};

/* ---- what the thread waits for ---- */

/* Tags of epoll: two words of the arbiter's, or a container, or a process of one. All are removed
 * from epoll under the lock before they are freed, and events are fetched under the lock. */
static int watch(struct arbiter *self, int descriptor, void *tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = tag};
    return epoll_ctl(self->epoll, EPOLL_CTL_ADD, descriptor, &event) == 0 ? 0 : -errno;
}

static void unwatch(struct arbiter *self, int descriptor)
{
    epoll_ctl(self->epoll, EPOLL_CTL_DEL, descriptor, NULL);
}

static void nudge(struct arbiter *self)
{
    uint64_t one = 1;
    ssize_t written = write(self->bell, &one, sizeof one);
    (void)written; /* a full bell rings */
    if (self->simulated)
        self->world->wake(NULL);
}

static void free_process(struct arbiter *self, struct process *process)
{
    if (process->pidfd >= 0) {
        unwatch(self, process->pidfd);
        close(process->pidfd);
    }
    free(process);
}

/* Take it out of its container's list. */
static void remove_process(struct arbiter *self, struct arbiter_container *container,
                           struct process **link)
{
    struct process *process = *link;
    *link = process->next;
    free_process(self, process);
    gpu_mark_due(container);
}

static void mute(struct arbiter *self, struct arbiter_container *container, uint64_t now)
{
    unwatch(self, container->ring);
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
                remove_process(self, one, link);
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
        if (tag == &self->bell || tag == &self->timer) {
            uint64_t times;
            ssize_t got = read(*(int *)tag, &times, sizeof times);
            (void)got; /* it may have been set again */
        } else if (container != NULL) {
            read_ring(self, container, now);
        } else {
            note_death(self, tag);
        }
    }
}

/* Those that ring too often are read each millisecond, and listened to again later. A pipe that
 * nobody can write any more, and an empty container's, are only listened to again. */
static uint64_t look_at_muted(struct arbiter *self, uint64_t now, uint64_t next)
{
    for (struct arbiter_container *one = self->containers; one != NULL; one = one->next) {
        if (one->watched)
            continue;
        if (one->muted_until <= now) {
            one->watched = watch(self, one->ring, one) == 0;
            one->muted_until = now + MUTED_MS * MILLISECOND;
        }
        uint64_t again = one->muted_until;
        if (one->rings > RINGS_PER_MS && one->processes != NULL) {
            gpu_mark_due(one);
            again = now + MILLISECOND;
        }
        if (again < next)
            next = again;
    }
    return next;
}

static uint64_t beat(struct arbiter *self, uint64_t now, uint64_t next)
{
    bool anybody = false, due = self->beat_at <= now;
    for (struct arbiter_container *one = self->containers; one != NULL; one = one->next) {
        anybody |= one->processes != NULL;
        if (due && one->processes != NULL)
            atomic_store_explicit(&one->words->heartbeat_ns, now, memory_order_relaxed);
    }
    if (due)
        self->beat_at = now + BEAT_MS * MILLISECOND;
    return anybody && self->beat_at < next ? self->beat_at : next;
}

/* Returns when to look again. */
static uint64_t look(struct arbiter *self, uint64_t now)
{
    uint64_t next = look_at_muted(self, now, UINT64_MAX);
    next = beat(self, now, next);
    for (uint32_t at = 0; at < ARBITER_GPUS; at++) {
        struct gpu *gpu = self->gpus[at];
        if (gpu == NULL)
            continue;
        if (gpu->next <= now)
            gpu_step(gpu, self->world, now);
        if (gpu->next < next)
            next = gpu->next;
    }
    return next;
}

static void sleep_until(struct arbiter *self, uint64_t next)
{
    if (self->simulated) {
        uint64_t latest = self->world->now() + LOOK_MS * MILLISECOND;
        self->world->wait(NULL, 0, next < latest ? next : latest);
        return;
    }
    struct itimerspec when = {0}; /* zeros: never */
    if (next != UINT64_MAX)
        when.it_value = (struct timespec){(time_t)(next / SECOND), (long)(next % SECOND)};
    timerfd_settime(self->timer, TFD_TIMER_ABSTIME, &when, NULL);
    struct epoll_event event;
    epoll_wait(self->epoll, &event, 1, -1);
}

static void *run(void *argument)
{
    struct arbiter *self = argument;
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

/* ---- what the manager calls ---- */

static void close_all(struct arbiter *self)
{
    close(self->timer);
    close(self->bell);
    close(self->epoll);
    for (uint32_t at = 0; at < ARBITER_GPUS; at++)
        free(self->gpus[at]);
    pthread_mutex_destroy(&self->lock);
    free(self);
}

/* A caller that is preempted with the lock held runs at the thread's priority until it lets go. No
 * signal of the agent's is handled in this thread. */
static int begin(struct arbiter *self)
{
    pthread_mutexattr_t inherit;
    pthread_mutexattr_init(&inherit);
    pthread_mutexattr_setprotocol(&inherit, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&self->lock, &inherit);
    pthread_mutexattr_destroy(&inherit);
    if (self->epoll < 0 || self->bell < 0 || self->timer < 0)
        return -errno;
    int result = watch(self, self->bell, &self->bell);
    if (result == 0)
        result = watch(self, self->timer, &self->timer);
    if (result != 0)
        return result;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    result = -pthread_create(&self->thread, NULL, run, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return result;
}

int arbiter_start(const struct vcuda_world *world, struct arbiter **out)
{
    struct arbiter *self = calloc(1, sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    self->world = world != NULL ? world : &real_world;
    self->simulated = world != NULL;
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    self->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    self->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    int result = begin(self);
    if (result == 0)
        *out = self;
    else
        close_all(self);
    return result;
}

/* Of arbiter_leave(), but for what the words say. */
static void forget(struct arbiter *self, struct arbiter_container *container)
{
    while (container->processes != NULL)
        remove_process(self, container, &container->processes);
    if (container->watched)
        unwatch(self, container->ring);
    for (struct arbiter_container **link = &self->containers; *link != NULL; link = &(*link)->next)
        if (*link == container) {
            *link = container->next;
            break;
        }
    free(container);
}

void arbiter_stop(struct arbiter *self)
{
    pthread_mutex_lock(&self->lock);
    self->stopping = true;
    pthread_mutex_unlock(&self->lock);
    nudge(self);
    pthread_join(self->thread, NULL);
    while (self->containers != NULL)
        forget(self, self->containers);
    close_all(self);
}

static int seat_all(struct arbiter *self, struct arbiter_container *container,
                    const struct arbiter_seat *seats, uint32_t count)
{
    int result = 0;
    for (uint32_t device = 0; device < count; device++) {
        const struct arbiter_seat *seat = &seats[device];
        if (!(seat->weight > 0)) {
            gpu_unseat(container, device);
            continue;
        }
        struct gpu **gpu = &self->gpus[seat->gpu];
        if (*gpu == NULL && (*gpu = calloc(1, sizeof **gpu)) != NULL)
            turns_init(&(*gpu)->turns, turns_rules(), self->world->now());
        int seated =
            *gpu == NULL ? -ENOMEM : gpu_seat(*gpu, container, device, seat->weight, seat->ceiling);
        if (seated != 0) {
            gpu_unseat(container, device);
            result = seated;
        }
    }
    return result;
}

int arbiter_join(struct arbiter *self, struct vcuda_turns *words, const struct vcuda_hints *hints,
                 int ring, const struct arbiter_seat *seats, uint32_t count,
                 struct arbiter_container **out)
{
    if (count > VCUDA_DEVICES)
        return -EINVAL;
    for (uint32_t device = 0; device < count; device++)
        if (seats[device].gpu >= ARBITER_GPUS)
            return -EINVAL;
    struct arbiter_container *container = calloc(1, sizeof *container);
    if (container == NULL)
        return -ENOMEM;
    container->words = words;
    container->hints = hints;
    container->ring = ring;
    container->count = count;
    words->abi = VCUDA_TURNS_ABI;
    words->size = sizeof *words;
    words->device_count = count;
    atomic_thread_fence(memory_order_release); /* a shim believes the rest by this word */
    words->magic = VCUDA_TURNS_MAGIC;
    pthread_mutex_lock(&self->lock);
    int result = seat_all(self, container, seats, count);
    if (result == 0)
        result = watch(self, ring, container);
    container->watched = result == 0;
    container->next = self->containers;
    self->containers = container;
    if (result != 0) {
        for (uint32_t device = 0; device < count; device++)
            gpu_unseat(container, device);
        forget(self, container);
    } else {
        *out = container;
    }
    pthread_mutex_unlock(&self->lock);
    nudge(self);
    return result;
}

void arbiter_weigh(struct arbiter *self, struct arbiter_container *container,
                   const struct arbiter_seat *seats, uint32_t count)
{
    pthread_mutex_lock(&self->lock);
    seat_all(self, container, seats, count < container->count ? count : container->count);
    pthread_mutex_unlock(&self->lock);
    nudge(self);
}

void arbiter_leave(struct arbiter *self, struct arbiter_container *container)
{
    pthread_mutex_lock(&self->lock);
    for (uint32_t device = 0; device < container->count; device++)
        gpu_unseat(container, device);
    forget(self, container);
    pthread_mutex_unlock(&self->lock);
    nudge(self);
}

static struct process **process_of(struct arbiter_container *container, uint32_t slot)
{
    struct process **link = &container->processes;
    while (*link != NULL && (*link)->slot != slot)
        link = &(*link)->next;
    return link;
}

int arbiter_process(struct arbiter *self, struct arbiter_container *container, uint32_t slot,
                    int pidfd)
{
    if (slot >= VCUDA_SLOTS)
        return -EINVAL;
    struct process *process = calloc(1, sizeof *process);
    if (process == NULL)
        return -ENOMEM;
    process->slot = slot;
    process->pidfd = pidfd < 0 ? -1 : fcntl(pidfd, F_DUPFD_CLOEXEC, 0);
    int result = pidfd >= 0 && process->pidfd < 0 ? -errno : 0;
    pthread_mutex_lock(&self->lock);
    if (process->pidfd >= 0)
        result = watch(self, process->pidfd, process);
    if (result != 0) {
        free_process(self, process);
    } else {
        struct process **link = process_of(container, slot);
        if (*link != NULL)
            remove_process(self, container, link);
        process->next = container->processes;
        container->processes = process;
        gpu_mark_due(container);
    }
    pthread_mutex_unlock(&self->lock);
    nudge(self);
    return result;
}

void arbiter_process_gone(struct arbiter *self, struct arbiter_container *container, uint32_t slot)
{
    pthread_mutex_lock(&self->lock);
    struct process **link = process_of(container, slot);
    if (*link != NULL)
        remove_process(self, container, link);
    pthread_mutex_unlock(&self->lock);
    nudge(self);
}

void arbiter_foreign(struct arbiter *self, uint32_t gpu, bool foreign)
{
    pthread_mutex_lock(&self->lock);
    if (gpu < ARBITER_GPUS && self->gpus[gpu] != NULL) {
        self->gpus[gpu]->turns.foreign = foreign;
        self->gpus[gpu]->next = 0;
    }
    pthread_mutex_unlock(&self->lock);
    nudge(self);
}

void arbiter_account(struct arbiter *self, struct arbiter_container *container, uint32_t device,
                     struct arbiter_account *out)
{
    *out = (struct arbiter_account){0};
    pthread_mutex_lock(&self->lock);
    if (device < container->count && container->seats[device].gpu != NULL) {
        const struct turns_gpu *turns = &container->seats[device].gpu->turns;
        const struct turns_member *member = &turns->members[container->seats[device].member];
        *out = (struct arbiter_account){
            .charged_ns = (uint64_t)member->charged_ns,
            .turns = member->turns,
            .waited_ns = (uint64_t)member->waited_ns,
            .late = member->lates,
            .owed_ns = (turns->virtual_ns - member->virtual_ns) * member->weight,
        };
    }
    pthread_mutex_unlock(&self->lock);
}
