/* What this process knows of its graphs: which of them need memory, and what the driver holds. */
#ifndef SHIM_CUDA_GRAPH_STATE_H
#define SHIM_CUDA_GRAPH_STATE_H

#include "core/memory/pointers.h"
#include "vcuda_region.h"

#include <pthread.h>
#include <stdbool.h>

enum { GRAPH_STREAMS = 32 };

/* A stream in which graphs run. bytes: of the one that needs most, for they run one after another;
 * 0: the place is free, unless some are being launched. launches: so far. */
struct graph_stream {
    uint64_t stream; /* pool_stream_key() */
    uint64_t bytes;
    uint64_t launches;
    unsigned flying;
};

/* What the driver has for all graphs on one device, which it keeps until it is trimmed.
 *
 * known: what it last said that it has. flying: what launches that are under way may add at most.
 * held: what is in the books, never less than the driver may have. A query of the driver gets a
 * ticket before, and counts only if none with a later ticket has been counted.
 *
 * streams: what they come to is all that the driver needs at once if no graph leaves memory
 * allocated. The first place is for all that are gone, or have no place of their own. */
struct graph_pool {
    pthread_mutex_t mutex; /* for all of these; never held across a call of the driver */
    uint64_t tickets;
    uint64_t counted;
    uint64_t known;
    uint64_t flying;
    uint64_t held;
    struct graph_stream streams[GRAPH_STREAMS];
    uint32_t looks; /* of the manager, before the query that was counted last */
    bool fine;      /* the driver takes less than GRAPH_COARSE at a time */
    bool keeps;     /* there was a graph that leaves memory allocated */
};

/* execs: what needs memory, by its handle; `owner` is its struct graph_need. All zero is empty. */
struct graph_memory {
    struct graph_pool pools[VCUDA_DEVICES];
    struct pointers execs;
};

#endif
