/* All the CUDA shim knows of this process: its session, its allocations, its work in flight. */
#ifndef SHIM_CUDA_PROCESS_H
#define SHIM_CUDA_PROCESS_H

#include "core/memory/physical.h"
#include "core/memory/pointers.h"
#include "core/memory/pools.h"
#include "core/memory/slabs.h"
#include "core/time/event_pool.h"
#include "cuda/graph/state.h"
#include "cuda/memory/tally.h"
#include "cuda/own_calls.h"
#include "cuda/time/turn.h"
#include "cuda_hooks.h"
#include "runtime/session.h"

enum { PROCESS_ORDINALS = 64 };

/* Kinds of charged things, by what the driver knows them by. */
enum holding {
    HOLDING_MEMORY,  /* addresses; owner: the pool that is charged for it, or 0 */
    HOLDING_ARRAY,   /* arrays and mipmapped arrays */
    HOLDING_CONTEXT, /* no bytes: which device a context is on */
    HOLDING_MODULE,  /* the same of a module or library */
    HOLDING_IMPORT,  /* addresses of other processes' memory; owner: how often it was opened */
    HOLDINGS,
};

/* Streams in whose order memory is given back (memory/streams.h). All zero is empty. */
enum { STREAMS_NOTED = 64 };
struct stream_list {
    pthread_mutex_t mutex;
    size_t count;
    uint64_t streams[STREAMS_NOTED];
};

/* Functions that were launched, by a hash of their handles: one of two that share a bit may pass
 * for launched. All zero is none. */
enum { LAUNCHED_BITS = 1 << 16 };
struct launched {
    _Atomic uint64_t words[LAUNCHED_BITS / 64];
};

/* Lies in pages that a forked child finds zero (runtime/fork.h). */
struct process {
    struct session session;
    _Atomic uint64_t epoch; /* another in each process of a line of forks; 0: not attached yet */
    struct pointers holdings[HOLDINGS];
    struct slabs slabs;
    _Atomic uint64_t freed[VCUDA_DEVICES]; /* how often the driver was given something back */
    _Atomic uint64_t endings;              /* of contexts, begun so far */
    struct pools pools;
    struct stream_list streams;
    struct physicals physicals; /* of cuMemCreate, and what keeps them */
    atomic_uint degraded; /* VCUDA_DEGRADED_* seen before the session could tell the manager */
    _Atomic int8_t devices[PROCESS_ORDINALS]; /* by CUDA ordinal: index + 2; 1 none, 0 not asked */
    struct tally tallies[VCUDA_DEVICES];
    _Atomic uint64_t let_go[VCUDA_DEVICES]; /* bytes of shared memory, unmeasured (virtual.c) */
    _Atomic uint64_t silent_until; /* by clock_now(): the manager did not answer, do not ask */
    _Atomic uint64_t measured_at;  /* by clock_now() */
    struct graph_memory graphs;
    atomic_uint captures;      /* of streams, under way: at most (capturing.h) */
    struct event_pools events; /* of marks */
    struct turn_device turn_devices[VCUDA_DEVICES];
    struct pointers collectives;  /* handles (collective.h) */
    atomic_uint collective_count; /* 0: there never was one */
    struct launched launched;
};

/* What a hook has to do. */
enum gate {
    GATE_DRIVER,  /* nothing: call the driver */
    GATE_LIMITED, /* hold the limits */
    GATE_REFUSED, /* limits cannot be held: answer CUDA_ERROR_SYSTEM_NOT_READY */
};

/* Enter a call of the driver, or several: until process_leave() the thread cannot be cancelled, for
 * what it has reserved would be lost with it. A call that comes in meanwhile on this thread is the
 * program's, as from a CUPTI callback, and limited as any other, unless the driver calls itself by
 * way of us. May be nested. Not around what waits for the GPU. Of attached processes. */
void process_enter(struct process *process);
void process_leave(void);

/* Whether the thread has entered more than once: a tool that the driver calls back allocates, and
 * the call that it is in waits for it. */
bool process_nested(void);

/* The same, and memory moves meanwhile: the manager must not measure (core/memory/slot.h). */
void process_move_begin(struct process *process);
void process_move_end(struct process *process);

/* Where this process's state is kept; only for the two below. */
extern void *_Atomic process_place;

/* This process's state; NULL without memory. */
struct process *process_state(void);

/* The state if there is one already, else NULL. */
static inline struct process *process_known(void)
{
    return atomic_load_explicit(&process_place, memory_order_acquire);
}

/* Which process of a line of forks this is: what a thread kept of another one is not its own. */
static inline uint64_t process_epoch(const struct process *process)
{
    return atomic_load_explicit(&process->epoch, memory_order_relaxed);
}

/* The process if it is attached and the call is the program's, else NULL. Never attaches. */
struct process *process_limited(void);

/* Decide for a hook, attaching if need be. `*process` is set for GATE_LIMITED. */
enum gate process_gate(struct process **process);

/* The same for a call that is charged: it is entered, until process_leave(). NULL and nothing to
 * leave where the driver is to answer alone, or where the result is an error. */
CUresult process_enter_limited(struct process **process);

/* Attach for cuInit, which may try again what failed before. */
enum gate process_begin(void);

/* Tell the manager of a degradation, VCUDA_DEGRADED_*, now or when there is a session. */
void process_degrade(struct process *process, uint32_t flag);

/* Index in the configuration of a CUDA ordinal; -1 if it is not granted. Calls the driver. */
int process_device(struct process *process, CUdevice ordinal);

/* Does the driver know a device of this ordinal? Not before cuInit. */
bool process_ordinal(CUdevice ordinal);

/* The same of the calling thread's current device; the driver's error if there is none. */
CUresult process_current(struct process *process, int *device);

/* What the container may hold on a device. */
static inline uint64_t process_memory_limit(const struct process *process, unsigned device)
{
    return atomic_load_explicit(&process->session.config->limits[device].memory_bytes,
                                memory_order_relaxed);
}

/* Stream 0 of the _ptsz forms, as the other functions of the driver know it. */
static inline CUstream process_own_stream(CUstream stream)
{
    return stream == NULL ? CU_STREAM_PER_THREAD : stream;
}

#endif
