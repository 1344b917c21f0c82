/* When measured launches ran, on the GPU's own clock: between the events of one context the driver
 * tells the time, whatever their streams. The end of one of them is kept to reckon from, for a
 * while: what a pair of events shows around nothing is then the same for all.
 *
 * Any thread. Nobody waits: who comes while another reckons is told to come again.
 */
#ifndef SHIM_CUDA_TIME_GPU_TIME_H
#define SHIM_CUDA_TIME_GPU_TIME_H

#include "core/time/flight.h"
#include "core/time/interval_union.h"

/* Of one device. */
struct gpu_time {
    atomic_bool held;
    void *anchor;          /* the event that is reckoned from, ours; NULL: none */
    atomic_ullong context; /* it belongs to it and dies with it; 0: none, or it has */
    int64_t anchor_ns;     /* when that was */
    int64_t ended_ns;      /* when the last of all launches had ended */
    struct interval_union cover;
    uint64_t spare_ns; /* covered, and not charged for: others in flight then may have had it */
};

/* Of what this launch took, which has ended, in `measured`: how much was not covered by others? All
 * of it if its context is not that of others. The event after it may be taken: then one that is not
 * needed any longer is in `old`, else NULL. False: not now; otherwise gpu_time_charge() must
 * follow. With the flight held, and its context current. */
bool gpu_time_take(struct gpu_time *time, struct flight *flight, uint64_t measured, uint64_t *own,
                   void **old);

/* What of such a cost is to be charged: no more than there was time for. */
uint64_t gpu_time_charge(struct gpu_time *time, uint64_t cost);

/* That context has ended. */
void gpu_time_context_ended(struct gpu_time *time, unsigned long long context);

#endif
