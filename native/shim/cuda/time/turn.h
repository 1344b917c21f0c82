/* A launch in its container's turn.
 *
 * A process launches while the arbiter grants its container the GPU (runtime/turns.h), and keeps no
 * more in flight than lasts about the window that it is told, so that a turn ends soon after it is
 * taken back. That work has ended is seen by marks: events without timing, recorded behind a launch
 * by its own thread, and looked at by threads that launch, wait for room, or have waited for the
 * stream; and by a thread of our own, the watcher, which looks when no other does. It only ever
 * asks, so that no driver call of ours can last.
 *
 * Where another container waits for the GPU each launch carries a mark. Else one in half a window
 * does, and one after a pause, and what comes behind the last mark counts as ended when it has had
 * the time.
 *
 * No launch is held for ever: kernels may wait for one another, for other processes, or for the
 * host. The GPUs of collectives are one turn (arbiter/core/gang.h); at its end a process that has
 * launched fewer of them than another one, which has some in flight, catches up with it at once.
 * While what the container has in flight makes no progress, a launch into a stream with nothing in
 * flight passes after 5 ms, any other after a second or ten times the longest, whichever is more.
 * Where no arbiter answers, a bucket of the container's own fills by its guarantee, and a launch
 * costs what the last ones took.
 *
 * All zero is a valid beginning. No lock is held across a call of the driver, nor in a wait.
 */
#ifndef SHIM_CUDA_TIME_TURN_H
#define SHIM_CUDA_TIME_TURN_H

#include "core/time/run_ahead.h"
#include "runtime/turns.h"
#include "vcuda_region.h"

#include "cuda_hooks.h"

#include <pthread.h>

enum {
    TURN_MARKS = 256,
    TURN_STREAMS = 64, /* with work in flight; the last stands for all further ones */
};

/* Behind so many launches of one stream. */
struct turn_mark {
    CUevent event;
    CUcontext context;
    unsigned long long number; /* of the context */
    uint32_t stream;           /* its index */
    uint32_t launches;
    uint32_t collectives;
    uint64_t begun; /* the first of them */
    bool shared;    /* work of others was in flight */
    bool ended;
};

struct turn_stream {
    uint64_t key; /* pool_stream_key(); 0: free */
    uint32_t in_flight;
    uint32_t unmarked; /* of those, behind the last mark */
    uint32_t collectives;
    uint64_t begun, marked; /* the first of those; the last mark */
};

/* One device. */
struct turn_device {
    pthread_mutex_t mutex;
    struct run_ahead ahead;
    uint32_t in_flight;
    uint32_t waiting;
    bool looking; /* a thread asks the driver for the marks, without the lock */
    bool watched; /* the watcher is there */
    bool shared;
    uint64_t launched, begun; /* the last launch; the first of those in flight */
    uint64_t looked;          /* when something was last seen to be in flight still */
    uint64_t away;            /* last look of an arbiter that was found to be away */
    _Atomic uint32_t moved;   /* futex: counts what may let somebody go on */
    uint32_t head, tail;      /* of the marks, counted for ever */
    struct turn_mark marks[TURN_MARKS];
    struct turn_stream streams[TURN_STREAMS];
};

struct launch;
struct process;

/* Wait for the turn, and count the launch. True: turn_end() must follow it. */
bool turn_begin(struct process *process, unsigned device, struct launch *launch);
void turn_end(struct launch *launch, CUresult result);

/* The program has waited for this stream (pool_stream_key(), GAP_ANY for all). */
void turn_waited(struct process *process, unsigned device, uint64_t stream);

/* A context is about to end: its marks say nothing any more. */
void turn_context_ends(struct process *process, CUcontext context);

#endif
