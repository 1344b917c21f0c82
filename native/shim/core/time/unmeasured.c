#include "core/time/unmeasured.h"

#include <stddef.h>

static bool any(const struct unmeasured *unmeasured)
{
    return atomic_load_explicit(&unmeasured->count, memory_order_relaxed) > 0;
}

/* NULL if it is not there. */
static struct unmeasured_stream *find(struct unmeasured *unmeasured, uint64_t context,
                                      uint64_t stream)
{
    for (unsigned index = 0; index < UNMEASURED_STREAMS; index++) {
        struct unmeasured_stream *one = &unmeasured->of[index];
        if (one->failures > 0 && one->context == context && one->stream == stream)
            return one;
    }
    return NULL;
}

/* A free place, or that of the stream which failed longest ago. */
static struct unmeasured_stream *make_room(struct unmeasured *unmeasured)
{
    struct unmeasured_stream *choice = &unmeasured->of[0];
    for (unsigned index = 0; index < UNMEASURED_STREAMS; index++) {
        struct unmeasured_stream *one = &unmeasured->of[index];
        if (one->failures == 0)
            return one;
        if (one->failed_ns < choice->failed_ns)
            choice = one;
    }
    return choice;
}

bool unmeasured_fail(struct unmeasured *unmeasured, struct unmeasured_stream stream, uint64_t now)
{
    pthread_mutex_lock(&unmeasured->mutex);
    struct unmeasured_stream *one = find(unmeasured, stream.context, stream.stream);
    if (one == NULL) {
        one = make_room(unmeasured);
        *one = (struct unmeasured_stream){
            .context = stream.context, .stream = stream.stream, .device = stream.device};
        atomic_fetch_add_explicit(&unmeasured->count, 1, memory_order_relaxed);
    }
    one->failed_ns = now;
    bool alone = ++one->failures >= UNMEASURED_FAILURES;
    pthread_mutex_unlock(&unmeasured->mutex);
    return alone;
}

void unmeasured_succeed(struct unmeasured *unmeasured, uint64_t context, uint64_t stream)
{
    if (!any(unmeasured))
        return;
    pthread_mutex_lock(&unmeasured->mutex);
    struct unmeasured_stream *one = find(unmeasured, context, stream);
    if (one != NULL)
        one->failures = 0;
    pthread_mutex_unlock(&unmeasured->mutex);
}

bool unmeasured_has(struct unmeasured *unmeasured, uint64_t context, uint64_t stream, uint64_t now)
{
    if (!any(unmeasured))
        return false;
    pthread_mutex_lock(&unmeasured->mutex);
    const struct unmeasured_stream *one = find(unmeasured, context, stream);
    bool alone = one != NULL && one->failures >= UNMEASURED_FAILURES &&
                 now - one->failed_ns < UNMEASURED_AGAIN_NS;
    pthread_mutex_unlock(&unmeasured->mutex);
    return alone;
}

/* What the time until now costs more than was paid. */
static uint64_t settle(struct unmeasured_stream *one, bool idle, uint64_t now)
{
    uint64_t elapsed = one->since_ns == 0 ? 0 : now - one->since_ns;
    elapsed = elapsed < UNMEASURED_MOST_NS ? elapsed : UNMEASURED_MOST_NS;
    uint64_t owed = elapsed > one->paid_ns ? elapsed - one->paid_ns : 0;
    /* What was paid in advance counts on while the work goes on: of a queue of 20 ms that was paid
     * at once, 1 ms has passed, say. */
    one->paid_ns = idle || elapsed > one->paid_ns ? 0 : one->paid_ns - elapsed;
    one->since_ns = idle ? 0 : now;
    return owed;
}

uint64_t unmeasured_see(struct unmeasured *unmeasured, uint64_t context, uint64_t stream,
                        struct unmeasured_look look)
{
    uint64_t owed = 0;
    pthread_mutex_lock(&unmeasured->mutex);
    struct unmeasured_stream *one = find(unmeasured, context, stream);
    if (one != NULL && look.idle && look.held)
        one->since_ns = one->paid_ns = 0;
    else if (one != NULL)
        owed = settle(one, look.idle, look.now);
    pthread_mutex_unlock(&unmeasured->mutex);
    return owed;
}

void unmeasured_launch(struct unmeasured *unmeasured, uint64_t context, uint64_t stream,
                       uint64_t paid_ns, uint64_t now)
{
    pthread_mutex_lock(&unmeasured->mutex);
    struct unmeasured_stream *one = find(unmeasured, context, stream);
    if (one != NULL) {
        one->since_ns = now;
        one->paid_ns += paid_ns;
    }
    pthread_mutex_unlock(&unmeasured->mutex);
}

uint64_t unmeasured_waited(struct unmeasured *unmeasured, uint32_t device, uint64_t stream,
                           uint64_t now)
{
    uint64_t owed = 0;
    if (!any(unmeasured))
        return 0;
    pthread_mutex_lock(&unmeasured->mutex);
    for (unsigned index = 0; index < UNMEASURED_STREAMS; index++) {
        struct unmeasured_stream *one = &unmeasured->of[index];
        if (one->failures > 0 && one->device == device &&
            (stream == UNMEASURED_ANY || one->stream == stream))
            owed += settle(one, true, now);
    }
    pthread_mutex_unlock(&unmeasured->mutex);
    return owed;
}

void unmeasured_context_ended(struct unmeasured *unmeasured, uint64_t context)
{
    if (!any(unmeasured))
        return;
    pthread_mutex_lock(&unmeasured->mutex);
    for (unsigned index = 0; index < UNMEASURED_STREAMS; index++)
        if (unmeasured->of[index].context == context)
            unmeasured->of[index].failures = 0;
    pthread_mutex_unlock(&unmeasured->mutex);
}
