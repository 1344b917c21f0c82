/* Memory that the driver takes for graphs, in the books.
 *
 *     graph_flight_begin → the driver launches, or uploads → graph_flight_end
 *
 * What a graph may need is reserved before the call, and afterwards the books say what the driver
 * says that it has. A graph launched again in the stream it was in, with nothing trimmed since, has
 * its memory already, unless graphs leave memory allocated.
 */
#ifndef SHIM_CUDA_GRAPH_MEMORY_H
#define SHIM_CUDA_GRAPH_MEMORY_H

#include "cuda/graph/need.h"

/* One executable graph that needs memory. launched: trims of the device before its last launch,
 * plus 1; 0 for never. */
struct graph_exec {
    struct graph_need need;
    CUstream stream;
    uint64_t launched[VCUDA_DEVICES];
};

struct graph_flight {
    struct process *process; /* NULL: nothing to charge */
    struct graph_exec *exec;
    CUstream stream;
    uint64_t flying[VCUDA_DEVICES];
    uint64_t trims[VCUDA_DEVICES]; /* there had been when it took off */
};

/* Reserve for a launch. On an error the call must not be made. */
CUresult graph_flight_begin(struct graph_flight *flight, struct process *process,
                            struct graph_exec *exec, CUstream stream);

/* The driver has answered. Returns its answer. */
CUresult graph_flight_end(struct graph_flight *flight, CUresult result);

/* Bring the books to what the driver has for graphs: on a device, by its ordinal; on all. Cheap
 * where there are none. Any thread; calls the driver. */
void graph_settle(struct process *process, CUdevice ordinal);
void graph_memory_settle_all(struct process *process);

/* Have the driver give back what no graph uses now. Returns its answer. */
CUresult graph_trim(struct process *process, CUdevice ordinal);

/* The same before a request is refused, on a device by its index. Was there anything to trim? */
bool graph_reclaim(struct process *process, unsigned device);

#endif
