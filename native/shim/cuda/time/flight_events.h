/* The driver's events of a watched launch: recorded around it, asked whether it is done, and for
 * how long it ran.
 *
 * A mark has one event, behind the launch. A measured launch has one before and one behind it, and
 * the first ones of a device a third, for the floor (core/time/event_floor.h):
 *
 *     busy stream   start  kernel  end  probe      the pair behind the launch is empty
 *     idle stream   probe  start  kernel  end      the pair before the launch is empty
 *
 * All with the flight held, its context current and the capture mode relaxed.
 */
#ifndef SHIM_CUDA_TIME_FLIGHT_EVENTS_H
#define SHIM_CUDA_TIME_FLIGHT_EVENTS_H

#include "cuda/time/timing.h"

/* Before and after the launch. On an error the flight may have events nevertheless. */
CUresult flight_events_begin(struct timing *timing, struct flight *flight, CUstream stream);
CUresult flight_events_end(struct timing *timing, struct flight *flight, CUstream stream);

/* CUDA_SUCCESS if the launch has ended. */
CUresult flight_events_query(const struct flight *flight);

/* What the launch took, of a measured one that has ended. */
CUresult flight_events_elapsed(struct timing *timing, const struct flight *flight, uint64_t *ns);

/* They are kept for the next launch; or, where the driver would not take them, destroyed. */
void flight_events_keep(struct timing *timing, struct flight *flight);
void flight_events_destroy(struct flight *flight);

/* One that no flight has any longer. */
void flight_event_keep(struct timing *timing, unsigned long long context, void *event);

#endif
