/* What is in flight on one device, and how it is seen to end. */
#ifndef SHIM_CUDA_TIME_TURN_MARKS_H
#define SHIM_CUDA_TIME_TURN_MARKS_H

#include "cuda/process.h"
#include "runtime/turns.h"

/* One device of this process, for as long as a call takes. */
struct turn_view {
    struct process *process;
    struct turn_device *device;
    const struct vcuda_turn *word;
    struct vcuda_hint *hint;
    const struct vcuda_world *world;
    struct turns *turns;
    unsigned index;
};

struct turn_view turn_view(struct process *process, unsigned index);

static inline uint32_t turn_word(const struct turn_view *view)
{
    return atomic_load_explicit(&view->word->turn, memory_order_acquire);
}

/* Are its words too old to be believed? */
static inline bool turn_is_stale(const struct turn_view *view, uint64_t now)
{
    return now >= atomic_load_explicit(&view->word->looked_ns, memory_order_acquire) +
                      VCUDA_LEASE_MS * UINT64_C(1000000);
}

/* May the driver be asked whether all in this stream has ended? */
bool turn_can_ask(const struct turn_view *view, const struct turn_stream *stream);

/* Its place, which is made if need be. With the lock. */
uint32_t turn_stream_of(const struct turn_view *view, uint64_t key);

/* Count launches that are about to be made, or were just made. With the lock. */
void turn_count(const struct turn_view *view, uint32_t stream, uint32_t launches, bool collective,
                uint64_t now);

/* Count in what threads launched by credit. With the lock. */
void turn_count_credited(const struct turn_view *view, uint64_t now);

/* All credit of the device is void. With the lock. */
void turn_end_credit(const struct turn_view *view);

/* So many launches of a stream are in flight no more. With the lock. */
void turn_uncount(const struct turn_view *view, uint32_t stream, uint32_t launches,
                  uint32_t collectives, uint64_t now);

/* Look which marks were passed. With the lock, which it gives up meanwhile. waited: what has ended
 * has ended just now, for this thread waited for it. */
void turn_look(const struct turn_view *view, uint64_t now, bool waited);

/* All in this stream has ended (GAP_ANY: in all), marks or not. With the lock. */
void turn_stream_ended(const struct turn_view *view, uint64_t key, uint64_t now);

/* What is behind the last mark of each stream of this context has ended. With the lock. */
void turn_context_waited(const struct turn_view *view, CUcontext context, uint64_t now);

/* Have a mark recorded behind the launch that was just made. With the lock, which it gives up
 * meanwhile. */
void turn_mark(const struct turn_view *view, uint32_t stream, CUstream handle, uint64_t now);

/* This stream is asked no more; a mark is recorded behind what is in it. With the lock, which it
 * gives up meanwhile. */
void turn_stream_leave(const struct turn_view *view, const void *handle);

/* The marks of this context are asked for no more. With the lock. */
void turn_marks_leave(const struct turn_view *view, const void *context);

/* They may be asked for again: it has not ended. With the lock. */
void turn_marks_stay(const struct turn_view *view, const void *context);

/* It has, and they count as passed. With the lock. */
void turn_marks_left(const struct turn_view *view, const void *context);

/* The number of a context, which no later one has. */
unsigned long long turn_context_number(CUcontext context);

/* When to look whether the oldest in flight have ended. */
uint64_t turn_next_look(const struct turn_device *device, uint64_t now);

/* Have the watcher look, which is made if need be. With the lock. */
void turn_watch(const struct turn_view *view);

#endif
