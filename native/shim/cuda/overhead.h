/* What the driver takes by itself: for contexts, for modules, for heaps.
 *
 *     overhead_begin → the driver takes → overhead_end
 *
 * How much it is nobody says. So it is estimated and reserved before, measured by the manager after
 * (session_measure), and then the estimate is dropped. What goes over the limit in spite of that is
 * undone by the caller: such an excess is momentary. While the manager does not answer, the
 * estimate stands; its next regular measurement replaces it.
 *
 * Of several at once on one device the last one to end measures, for an estimate may go only when
 * nothing is under way that it stands for.
 */
#ifndef SHIM_CUDA_OVERHEAD_H
#define SHIM_CUDA_OVERHEAD_H

#include "cuda/process.h"

struct overhead {
    struct process *process; /* NULL: not limited */
    unsigned device;         /* index in the configuration */
    uint64_t estimate;
    bool often; /* there are many of its kind: not each is measured at once */
};

/* On the current device, or on one by its ordinal. On an error the driver must not be called. */
CUresult overhead_begin(struct overhead *overhead, uint64_t estimate);
CUresult overhead_begin_on(struct overhead *overhead, CUdevice ordinal, uint64_t estimate);

/* The driver has answered. Returns what it said, or CUDA_ERROR_OUT_OF_MEMORY if that went over the
 * limit: then the caller undoes it and calls overhead_undone(). */
CUresult overhead_end(struct overhead *overhead, CUresult result);
void overhead_undone(struct overhead *overhead);

/* A context of this process came into being (1) or ended (-1). */
void overhead_contexts(struct process *process, unsigned device, int change);

/* The driver may have taken memory on the current device that was neither announced nor is it
 * measured yet. Returns `result`. */
CUresult overhead_grown(CUresult result);

/* What is measured may be too much, or too little: to be measured before it is relied upon. */
void overhead_outdated(struct process *process, unsigned device);

/* The driver gave memory of its own back on this device. `often`: as in struct overhead. */
void overhead_shrunk(struct process *process, unsigned device, bool often);

/* The driver gave back `bytes` that the books still hold as the program's, and the manager may have
 * measured in between: what it then took for the driver's own may be less by as much. To be called
 * before the books give them back, while memory moves. */
void overhead_presume(struct process *process, unsigned device, uint64_t bytes);

/* Have the manager measure what the driver took. 0, or a negated errno: -EAGAIN if it was not
 * asked, for it does not answer or was asked just now about what comes `often`, or was and did not
 * answer. */
int overhead_measure(struct process *process, unsigned device, bool often);

/* What the driver is known to take for one context. */
uint64_t overhead_of_context(const struct process *process, int device);

/* For overhead_refresh(): notice what came into being without us, measure what was put off. */
void overhead_look(struct process *process, unsigned device, bool exactly);

/* May the books say more than there is, for lack of a measurement? */
static inline bool overhead_unsettled(const struct process *process, unsigned device)
{
    /* relaxed: a hint */
    return atomic_load_explicit(&process->tallies[device].state, memory_order_relaxed) ==
           TALLY_ESTIMATED;
}

/* Before a figure is used: what the driver took is in the books. `exactly`: the latest, too. */
static inline void overhead_refresh(struct process *process, int device, bool exactly)
{
    /* relaxed: a hint; everything it stands for is guarded by the tally's mutex */
    if (device >= 0 && atomic_load_explicit(&process->tallies[device].state,
                                            memory_order_relaxed) != TALLY_MEASURED)
        overhead_look(process, (unsigned)device, exactly);
}

#endif
