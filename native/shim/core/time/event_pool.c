#include "core/time/event_pool.h"

#include <stddef.h>

/* The context's pool; with 0, one that is nobody's. NULL if there is none. */
static struct event_pool *find(struct event_pools *pools, uint64_t context)
{
    for (int index = 0; index < EVENT_POOL_CONTEXTS; index++)
        if (pools->of[index].context == context)
            return &pools->of[index];
    return NULL;
}

void *event_pools_take(struct event_pools *pools, uint64_t context)
{
    pthread_mutex_lock(&pools->mutex);
    struct event_pool *pool = find(pools, context);
    bool any = pool != NULL && pool->count > 0;
    void *event = any ? pool->events[--pool->count] : NULL;
    pthread_mutex_unlock(&pools->mutex);
    return event;
}

bool event_pools_give(struct event_pools *pools, uint64_t context, void *event)
{
    pthread_mutex_lock(&pools->mutex);
    struct event_pool *pool = find(pools, context);
    if (pool == NULL)
        pool = find(pools, 0);
    bool room = pool != NULL && pool->count < EVENT_POOL_SIZE;
    if (room) {
        pool->context = context;
        pool->events[pool->count++] = event;
    }
    pthread_mutex_unlock(&pools->mutex);
    return room;
}

void event_pools_context_ended(struct event_pools *pools, uint64_t context)
{
    pthread_mutex_lock(&pools->mutex);
    struct event_pool *pool = find(pools, context);
    if (pool != NULL && context != 0) {
        pool->context = 0;
        pool->count = 0;
    }
    pthread_mutex_unlock(&pools->mutex);
}
