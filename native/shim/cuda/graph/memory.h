/* Memory that the driver takes for graphs, in the books.
 *
 *     graph_flight_begin → the driver launches, or uploads → graph_flight_end
 *
 * What the driver may have to add for a graph is reserved before the call, and afterwards the books
 * say what the driver says that it has. Graphs of one stream never run at once and share their
 * memory (CUDA programming guide, "Graph Memory Nodes"), so that of each stream the largest counts.
 * Where there is no room for the sum of streams, those that run are waited for.
 */
#ifndef SHIM_CUDA_GRAPH_MEMORY_H
#define SHIM_CUDA_GRAPH_MEMORY_H

#include "cuda/graph/need.h"

struct graph_flight {
    struct process *process; /* NULL: nothing to charge */
    const struct graph_need *need;
    uint64_t stream; /* pool_stream_key() */
    uint64_t flying[VCUDA_DEVICES];
    struct graph_stream *places[VCUDA_DEVICES]; /* of the stream, where it is flying */
};

/* Reserve for a launch. On an error the call must not be made. */
CUresult graph_flight_begin(struct graph_flight *flight, struct process *process,
                            const struct graph_need *need, CUstream stream);

/* The driver has answered. Returns its answer. */
CUresult graph_flight_end(struct graph_flight *flight, CUresult result);

/* Bring the books to what the driver has for graphs, on all devices. Cheap where it has nothing.
 * Any thread; calls the driver. */
void graph_memory_settle_all(struct process *process);

/* Have the driver give back what no graph uses now. Returns its answer. */
CUresult graph_trim(struct process *process, CUdevice ordinal);

/* The same before a request is refused, on a device by its index. Was there anything to trim? */
bool graph_reclaim(struct process *process, unsigned device);

/* Has the driver memory for graphs on a device? */
bool graph_memory_held(struct process *process, unsigned device);

/* Launches in a stream, by pool_stream_key(), so far; if there were no more, what they needed is
 * done; it is gone, GAP_ANY: all are. */
uint64_t graph_launches(struct process *process, unsigned device, uint64_t stream);
void graph_stream_done(struct process *process, unsigned device, uint64_t stream,
                       uint64_t launches);
void graph_stream_left(struct process *process, unsigned device, uint64_t stream);

#endif
