/* Which number a process has for whom.
 *
 * A driver in a kernel tells every reader the numbers of the reader's own pid namespace. This one
 * is no part of a kernel: a process knows only what it calls itself. So there are two readers that
 * are told: those of the same namespace, and the host, which is the namespace that the machine was
 * made in. It sees every process, finds each one's number there in /proc, and leaves it in the
 * slot.
 */
#ifndef SIM_CORE_PIDS_H
#define SIM_CORE_PIDS_H

#include "core/state.h"

enum {
    PID_UNSEEN = 0, /* not visible from here, or it cannot be told */
    PID_GONE = -1,  /* surely no process any more */
};

/* What the calling process calls itself; 0 where it cannot be told. */
int pids_own(void);

/* The number that `process` has for the caller, or one of the above. The number is not looked at
 * anew: it may be of a process that has ended. */
int pids_here(const struct sim_state *state, struct sim_process *process);

/* Whether /proc shows the caller's own pid namespace: else nothing in it can be found by number. */
bool pids_in_proc(void);

#endif
