/* How many launches may be in flight, so that they last about as long as a window.
 *
 * What a launch takes is learnt from drains: so many were seen to end within so much time, whatever
 * ran side by side. No cost of a single kernel is known, and none is needed. While work of others,
 * or of the container's other processes, is on the GPU a drain takes longer than it would, so that
 * then only growth is believed. Where no arbiter tells whether there is any, a drain that took less
 * than the ones before is believed at once, and one that took more only a little.
 *
 * One lock's state: the caller's. All zero is a valid beginning.
 */
#ifndef SHIM_CORE_TIME_RUN_AHEAD_H
#define SHIM_CORE_TIME_RUN_AHEAD_H

#ifndef VCUDA_CDEF
#include <stdbool.h>
#include <stdint.h>
#endif

enum {
    RUN_AHEAD_FIRST = 4, /* launches, before anything is known */
    RUN_AHEAD_MOST = 4096,
};

enum drain_kind {
    DRAIN_ALONE,
    DRAIN_SHARED, /* beside others */
    DRAIN_UNTOLD, /* beside others or not */
};

struct run_ahead {
    uint32_t most;        /* launches in flight; 0: RUN_AHEAD_FIRST */
    uint32_t least;       /* of that: raised where a launch that was held back held up everything */
    uint64_t each_ns;     /* a launch took, of late; 0: not known */
    uint64_t ended_ns;    /* the last of them was seen to have ended */
    uint64_t longest_ns;  /* the longest of late */
    uint64_t sum_ns, sum; /* of late: what drains took, and parts of launches in them */
    bool shared;          /* those were beside others */
};

uint32_t run_ahead_most(const struct run_ahead *ahead);

/* So many launches, the first of them made at `begun`, are seen to have ended now. */
void run_ahead_learn(struct run_ahead *ahead, uint64_t begun, uint32_t launches, uint64_t now,
                     uint64_t window_ns, enum drain_kind kind);

/* One that was held back held up everything, as it seems. */
void run_ahead_give_way(struct run_ahead *ahead);

/* When to look whether the first `launches` of those in flight have ended: a good deal earlier than
 * by what is known, or it would never be seen that they take less; then at short intervals. */
uint64_t run_ahead_next_look(const struct run_ahead *ahead, uint64_t begun, uint32_t launches,
                             uint64_t now);

#endif
