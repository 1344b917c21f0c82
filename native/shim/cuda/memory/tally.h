/* How far the process knows what the driver took by itself on one device (overhead.h). All zero is
 * a valid beginning. */
#ifndef SHIM_CUDA_MEMORY_TALLY_H
#define SHIM_CUDA_MEMORY_TALLY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum tally_state {
    TALLY_UNSEEN = 0, /* no context that we know of */
    TALLY_MEASURED,
    TALLY_ESTIMATED, /* the books have an estimate, or less than there is */
};

struct tally {
    pthread_mutex_t mutex;           /* guards the rest; never held while anybody is asked */
    _Atomic(enum tally_state) state; /* written under the mutex, read without */
    unsigned under_way;              /* calls between begin and end */
    uint64_t begun;                  /* calls so far */
    uint32_t samples;                /* the manager's, when the last call ended */
    int contexts;                    /* that we saw come, less those that we saw go */
    _Atomic uint64_t freed;          /* the process's count, when it was last measured, */
    _Atomic uint64_t peers;          /* and what the others' moves came to (books.h) */
    uint64_t shown;                  /* of the driver's own bytes, in the last figure shown, */
    uint64_t shown_begun;            /* when so many calls had begun */
    uint64_t shown_freed;            /* and so much had been freed */
};

/* Under the mutex. */
static inline void tally_set(struct tally *tally, enum tally_state state)
{
    atomic_store_explicit(&tally->state, state, memory_order_relaxed);
}

#endif
