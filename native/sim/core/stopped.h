/* Processes that were stopped while they held the lock.
 *
 * A process that is stopped leaves the kernel first, and with it the locks of a real driver. This
 * driver is a library: SIGSTOP may come between lock and unlock, and then everybody on the machine
 * would wait. Who made the machine looks again and again, and continues those that are stopped
 * then. Whoever wants them stopped has to say so again.
 */
#ifndef SIM_CORE_STOPPED_H
#define SIM_CORE_STOPPED_H

#include "core/state.h"

/* Without the lock: returns within some milliseconds. To be called in the namespace that the
 * machine was made in, which sees all processes; how many were continued. */
unsigned stopped_continue(struct sim_state *state);

#endif
