/* Charging for device memory around a call of the driver.
 *
 *     charge_begin → the driver allocates → charge_settle
 *     release_begin → the driver frees → release_settle
 *
 * Memory is reserved before the driver is called and given back if it fails; what it gave is
 * forgotten before the driver frees it and its bytes are given back after. No lock is held in
 * between. Bytes are as the driver takes them: whole pages, which small allocations share
 * (core/memory/slabs.h).
 */
#ifndef SHIM_CUDA_MEMORY_CHARGE_H
#define SHIM_CUDA_MEMORY_CHARGE_H

#include "cuda/process.h"

struct charge {
    struct process *process; /* NULL: not limited */
    unsigned device;         /* index in the configuration */
    enum pointer_kind kind;
    uint64_t bytes;   /* reserved; 0 for what shares a page, which is the slabs' */
    uint64_t small;   /* what was asked for, where it shares a page; else 0 */
    bool claimed;     /* and that has a place there, or a page, until the driver has answered */
    uint64_t context; /* what is allocated ends with it; 0: with none */
};

/* Reserve on the current device, for something that ends with the current context. On an error of
 * the shim or the driver the call must not be made. */
CUresult charge_begin(struct charge *charge, uint64_t bytes, enum pointer_kind kind);

/* The same on a device by its ordinal, for whole pages that belong to no context. */
CUresult charge_begin_on(struct charge *charge, CUdevice ordinal, uint64_t bytes);

/* Between begin and end: the driver was asked for `bytes` in fact. 0, or -EDQUOT and nothing
 * changed. */
int charge_correct(struct charge *charge, uint64_t bytes);

/* Between begin and end: remember under what it will be freed. 0, -ENOMEM, or -EDQUOT where it took
 * a page that there is no room for: then it is to be freed. */
int charge_record(struct charge *charge, enum holding kind, uint64_t address);

/* The driver has answered: on an error gives back what was reserved. Returns `result`. */
CUresult charge_end(struct charge *charge, CUresult result);

/* Record and end, for memory: `address` counts if the driver succeeded. Returns what the program
 * gets. */
CUresult charge_settle(struct charge *charge, CUresult result, CUdeviceptr address);

struct release {
    struct process *process; /* NULL: nothing to give back */
    enum holding kind;
    struct pointer pointer;
    int slab;        /* in which it lay, if it shared a page */
    uint64_t stream; /* set in between: of a free in the order of a stream, pool_stream_key() */
};

void release_begin(struct release *release, enum holding kind, uint64_t address);
CUresult release_settle(struct release *release, CUresult result);

/* Give back what the driver has freed; stream: as above. */
void release_gone(struct process *process, const struct pointer *gone, uint64_t stream);

/* The same of what turns out to have been freed some time ago: whatever was measured since is wrong
 * by it. */
void release_stale(struct process *process, const struct pointer *gone);

/* Around a call that may end a context: set apart what ends with it, then give that back, or let it
 * stay if the context did. What others allocate meanwhile, in the context that comes after it and
 * may have the same handle, is not meant. */
struct ending {
    struct process *process;
    CUcontext context;
    uint64_t apart; /* in the place of the context: no handle, for it is odd */
};
struct ending release_context_begin(struct process *process, CUcontext context);
void release_context_end(const struct ending *ending, bool gone);

#endif
