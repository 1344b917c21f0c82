/* Events of the driver that are free to be recorded again, by the context they belong to.
 *
 * Making and destroying an event for each mark would cost about as much as recording it. Knows no
 * driver: an event is a pointer.
 *
 * Any thread: a short mutex. All zero is empty. Events of a context that has ended are forgotten:
 * they ended with it.
 */
#ifndef SHIM_CORE_TIME_EVENT_POOL_H
#define SHIM_CORE_TIME_EVENT_POOL_H

#ifndef VCUDA_CDEF
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#endif

enum {
    EVENT_POOL_CONTEXTS = 16, /* further ones have no pool */
    EVENT_POOL_SIZE = 64,
};

struct event_pool {
    uint64_t context; /* 0: the pool is nobody's */
    uint32_t count;
    void *events[EVENT_POOL_SIZE];
};

struct event_pools {
#ifdef VCUDA_CDEF
    ...;
#else
    pthread_mutex_t mutex;
    struct event_pool of[EVENT_POOL_CONTEXTS];
#endif
};

/* A free event of this context; NULL if there is none. */
void *event_pools_take(struct event_pools *pools, uint64_t context);

/* Keep an event for later. False if there is no room: the caller destroys it. */
bool event_pools_give(struct event_pools *pools, uint64_t context, void *event);

/* That context has ended, and its events with it. */
void event_pools_context_ended(struct event_pools *pools, uint64_t context);

#endif
