#include "manager/arbiter.h"

#include "glibc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "core/account.h"
#include "manager/loop.h"

static void nudge(struct arbiter *self)
{
    uint64_t one = 1;
    ssize_t written = write(self->bell, &one, sizeof one);
    (void)written; /* a full bell rings */
    if (self->simulated)
        self->world->wake(NULL);
}

static void close_all(struct arbiter *self)
{
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
    if (self->epoll < 0 || self->bell < 0)
        return -errno;
    int result = loop_watch(self, self->bell, &self->bell);
    if (result != 0)
        return result;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    result = -pthread_create(&self->thread, NULL, loop_run, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return result;
}

int arbiter_start(const struct vcuda_world *world, struct arbiter **out)
{
    struct arbiter *self = calloc(1, sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    self->world = world != NULL ? world : &loop_real_world;
    self->simulated = world != NULL;
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    self->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
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
        loop_remove_process(self, container, &container->processes);
    if (container->watched)
        loop_unwatch(self, container->ring);
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

static struct gpu *gpu_of(struct arbiter *self, uint32_t at)
{
    if (self->gpus[at] == NULL && (self->gpus[at] = calloc(1, sizeof *self->gpus[at])) != NULL)
        turns_init(&self->gpus[at]->turns, turns_rules(), self->world->now());
    return self->gpus[at];
}

static int seat_all(struct arbiter *self, struct arbiter_container *container,
                    const struct arbiter_seat *seats, uint32_t count)
{
    int result = 0;
    for (uint32_t device = 0; device < count; device++) {
        const struct arbiter_seat *seat = &seats[device];
        if (!(seat->weight > 0)) {
            gpu_ungovern(container, device, self->world);
            continue;
        }
        struct gpu *gpu = gpu_of(self, seat->gpu);
        int seated =
            gpu == NULL ? -ENOMEM : gpu_seat(gpu, container, device, seat->weight, seat->ceiling);
        if (seated != 0) {
            gpu_ungovern(container, device, self->world);
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
        result = loop_watch(self, ring, container);
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
        result = loop_watch(self, process->pidfd, process);
    if (result != 0) {
        loop_free_process(self, process);
    } else {
        struct process **link = process_of(container, slot);
        if (*link != NULL)
            loop_remove_process(self, container, link);
        gpu_process_comes(container, process, self->world->now());
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
        loop_remove_process(self, container, link);
    pthread_mutex_unlock(&self->lock);
    nudge(self);
}

void arbiter_foreign(struct arbiter *self, uint32_t gpu, bool foreign)
{
    pthread_mutex_lock(&self->lock);
    if (gpu < ARBITER_GPUS && gpu_of(self, gpu) != NULL) {
        self->gpus[gpu]->turns.foreign = foreign;
        self->gpus[gpu]->next = 0;
    }
    pthread_mutex_unlock(&self->lock);
    nudge(self);
}

void arbiter_charge(struct arbiter *self, struct arbiter_container *container, uint32_t device,
                    int64_t ns)
{
    pthread_mutex_lock(&self->lock);
    if (device < container->count && container->seats[device].gpu != NULL) {
        struct turns_gpu *turns = &container->seats[device].gpu->turns;
        struct turns_member *member = &turns->members[container->seats[device].member];
        double most_ns = turns->virtual_ns + turns->rules.debt / member->weight;
        member->virtual_ns = least(member->virtual_ns + (double)ns / member->weight,
                                   most(member->virtual_ns, most_ns));
        member->tokens =
            least(turns->rules.bucket,
                  most(member->tokens - (double)ns, least(member->tokens, -turns->rules.debt)));
        member->charged_ns = most(0, member->charged_ns + (double)ns);
        container->seats[device].gpu->next = 0;
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

uint64_t arbiter_looks(struct arbiter *self)
{
    pthread_mutex_lock(&self->lock);
    uint64_t looks = self->looks;
    pthread_mutex_unlock(&self->lock);
    return looks;
}
