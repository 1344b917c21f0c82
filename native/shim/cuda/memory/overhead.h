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
#ifndef SHIM_CUDA_MEMORY_OVERHEAD_H
#define SHIM_CUDA_MEMORY_OVERHEAD_H

#include "cuda/process.h"

struct overhead {
    struct process *process; /* NULL: not limited */
    unsigned device;         /* index in the configuration */
    uint64_t estimate;
    bool often;  /* there are many of its kind: not each is measured at once */
    bool unpaid; /* there was room for the least alone */
};

/* On the current device, or on one by its ordinal. On an error the driver must not be called. */
CUresult overhead_begin(struct overhead *overhead, uint64_t estimate);

/* The same for what may take less than is estimated, as code that is loaded lazily, but at least so
 * much. Where there is room for that alone, the driver is called all the same, and it is undone
 * unless a measurement shows that it fits. */
CUresult overhead_begin_loading(struct overhead *overhead, uint64_t estimate, uint64_t least);
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

/* What was done already for a request before it is refused; all zero at first. */
struct retry {
    bool waited;
    int measured, tries;
    uint64_t until;
};

/* After a reservation of `bytes` was refused: is it to be tried again? Streams that hold memory are
 * waited for first. It is where there is room by now, and where the driver holds less than the
 * books say, perhaps: then it is measured. There is reason for that if an estimate stands, or
 * something was freed since the last measurement, here or perhaps by another process of the
 * container: what the driver had besides (a page with little in it) may be gone, too. */
bool overhead_reconsider(struct process *process, unsigned device, uint64_t bytes,
                         struct retry *retry);

/* By how much the driver's own bytes are fewer than they were in the last figure shown, although
 * the program did nothing that could have made them so: free memory must not grow by a better
 * measurement under a program that compares (vLLM does). */
uint64_t overhead_withheld(struct process *process, unsigned device);

/* For overhead_refresh(): notice what came into being without us, measure what was put off.
 * `exactly`: the latest, too. */
void overhead_look(struct process *process, unsigned device, bool exactly);

/* Before `bytes` are reserved: near the limit, the latest, too. A driver that loads lazily takes
 * what no estimate stands for, and what it took since the last measurement must not be given away.
 */
void overhead_refresh_for(struct process *process, unsigned device, uint64_t bytes);

/* The driver was given something back on this device. */
static inline void overhead_freed(struct process *process, unsigned device)
{
    atomic_fetch_add_explicit(&process->freed[device], 1, memory_order_relaxed); /* a hint */
}

/* Before a figure is used: what the driver took is in the books, the latest, too. */
static inline void overhead_refresh(struct process *process, int device)
{
    /* relaxed: a hint; everything it stands for is guarded by the tally's mutex */
    if (device >= 0 && atomic_load_explicit(&process->tallies[device].state,
                                            memory_order_relaxed) != TALLY_MEASURED)
        overhead_look(process, (unsigned)device, true);
}

#endif
