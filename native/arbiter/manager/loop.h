/* The arbiter's thread: what wakes it, and what it looks at then. */
#ifndef ARBITER_MANAGER_LOOP_H
#define ARBITER_MANAGER_LOOP_H

#include <pthread.h>

#include "manager/gpu.h"

struct arbiter {
    const struct vcuda_world *world;
    bool simulated;
    pthread_t thread;
    pthread_mutex_t lock; /* all below */
    bool stopping;
    uint64_t looks; /* at GPUs */
    int epoll, bell;
    struct gpu *gpus[ARBITER_GPUS]; /* NULL: none of its containers has joined yet */
    struct arbiter_container *containers;
};

extern const struct vcuda_world loop_real_world;

/* Tags of epoll: the bell, or a container, or a process of one. All are removed
 * from epoll under the lock before they are freed, and events are fetched under the lock. 0 or a
 * negated errno. */
int loop_watch(struct arbiter *self, int descriptor, void *tag);
void loop_unwatch(struct arbiter *self, int descriptor);

void loop_free_process(struct arbiter *self, struct process *process);

/* Take it out of its container's list, too. */
void loop_remove_process(struct arbiter *self, struct arbiter_container *container,
                         struct process **link);

/* Of the thread, until `stopping`. */
void *loop_run(void *arbiter);

#endif
