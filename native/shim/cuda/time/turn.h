/* A launch in its container's turn.
 *
 * A process launches while the arbiter grants its container the GPU (runtime/turns.h), and keeps no
 * more in flight than lasts about the window that it is told, so that a turn ends soon after it is
 * taken back. That work has ended is seen by marks: events without timing, recorded behind a launch
 * by its own thread, and looked at by threads that launch, wait for room, or have waited for the
 * stream; and by a thread of our own, the watcher, which looks when no other does. It only ever
 * asks, so that no driver call of ours can last.
 *
 * A launch that comes here carries a mark where another container waits for the GPU, after a pause,
 * and where half a window is behind the last one. Its thread gets credit then: for so many further
 * launches in this stream as last until the next mark is due. It counts those itself, without a
 * lock, a clock or a call, and the next look counts them in. Credit ends with the word of the
 * turn, and when nothing is in flight any more. Of what comes behind the last mark of a stream the
 * driver is asked by the stream (cuStreamQuery); where that may not be, each launch has a mark.
 *
 * No launch is held for ever: kernels may wait for one another, for other processes, or for the
 * host. The GPUs of collectives are one turn (arbiter/core/gang.h); at its end a process that has
 * launched fewer of them than another one, which has some in flight, catches up with it at once.
 * While what the container has in flight makes no progress, a launch into a stream with nothing in
 * flight passes after 5 ms, any other after a second or ten times the longest, whichever is more.
 * Where no arbiter answers, a bucket of the container's own fills by its guarantee, and a launch
 * costs what the last ones took. It is emptied in bursts: a container that waited for each launch
 * would find the GPU in the slice of another one each time.
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
    uint8_t leaves; /* calls that may end its context are under way: it is not to be asked for */
    bool ended;
};

struct turn_stream {
    uint64_t key;      /* pool_stream_key(); 0: free */
    CUstream handle;   /* to ask by, with */
    CUcontext context; /* of its last mark; NULL: not to be asked */
    bool leaves;       /* its context is about to end */
    uint32_t in_flight;
    uint32_t unmarked; /* of those, behind the last mark */
    uint32_t collectives;
    uint64_t begun, marked; /* the first of those; the last mark */
    _Atomic uint32_t stamp; /* of credit: it moves when what was given is void */
    _Atomic uint32_t used;  /* launches by credit, counted for ever, by the thread that has it */
    uint32_t counted;       /* of those, in in_flight */
    bool lent;              /* a thread has credit, */
    uint64_t ended;         /* or had it until then, and may have used a last one just after */
};

/* One device. */
struct turn_device {
    pthread_mutex_t mutex;
    struct run_ahead ahead;
    uint32_t in_flight;
    uint32_t waiting;
    uint32_t behind; /* a mark, at most, since nothing was in flight */
    uint32_t lent;   /* streams in which a thread has credit */
    bool looking;    /* a thread asks the driver for the marks, without the lock */
    bool watched;    /* the watcher is there */
    bool rests;      /* and sleeps until it is woken */
    bool spent;      /* without an arbiter: the bucket is to fill before it is used again */
    bool ends;       /* some of it is void since the last look */
    bool shared;
    uint64_t launched, begun; /* the last launch; the first of those in flight */
    uint64_t looked;          /* when something was last seen to be in flight still */
    uint64_t away;            /* last look of an arbiter that was found to be away */
    _Atomic uint32_t moved;   /* futex: counts what may let a thread go on */
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

/* A context is about to end: its marks can be asked for no more. Returns its number, 0 for none. */
unsigned long long turn_context_ends(struct process *process, CUcontext context);

/* What was in flight in it is no more. number: of one that is gone. */
void turn_context_ended(struct process *process, CUcontext context, unsigned long long number);

/* A thread may make so many launches in one stream without telling. All zero: none. */
struct turn_credit {
    CUstream stream;
    uint32_t left;
    uint32_t stamp, turn;            /* as they were when it was given */
    const _Atomic uint32_t *stamped; /* the stream's; of a forked child it is zero */
    _Atomic uint32_t *used;
    const VCUDA_ATOMIC(uint32_t) * word;
};

extern _Thread_local struct turn_credit turn_credit;

/* The stamp first: in a forked child nothing else may be looked at. */
static inline bool turn_credit_covers(CUstream stream)
{
    return turn_credit.left > 0 && turn_credit.stream == stream &&
           atomic_load_explicit(turn_credit.stamped, memory_order_relaxed) == turn_credit.stamp &&
           atomic_load_explicit(turn_credit.word, memory_order_relaxed) == turn_credit.turn;
}

/* No other thread has credit in this stream, so that an addition need not be atomic. */
static inline void turn_credit_use(void)
{
    uint32_t used = atomic_load_explicit(turn_credit.used, memory_order_relaxed);
    atomic_store_explicit(turn_credit.used, used + 1, memory_order_relaxed);
    turn_credit.left--;
}

/* The program is about to destroy this stream. */
void turn_stream_goes(struct process *process, CUstream handle);

/* All threads of the process are to tell their next launch. */
void turn_credits_end(struct process *process);

#endif
