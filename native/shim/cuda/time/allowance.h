/* What this thread has paid for and not launched yet, so that most launches ask nobody.
 *
 * Paying means to read the clock and to move a word that all processes of the container share. So a
 * thread pays for about a millisecond of GPU time at once, and its launches take from that by
 * arithmetic of its own; the one that no longer finds enough pays for the next. What is paid and
 * not used is no more than one allowance for each thread, has no term, and is lost with the thread;
 * a thread's allowance is about what it used of the one before, so that threads that live short
 * take little. Meters move with an allowance, not with each launch. It ends after so many launches,
 * too: kernels of a kind that is known as short may be long today, and nobody would look.
 *
 * The launch that ends an allowance stands for all that it paid for: whether to measure its kind is
 * decided by the work since, and kinds that take much of it are met more often. Nothing is counted
 * for each launch.
 */
#ifndef SHIM_CUDA_TIME_ALLOWANCE_H
#define SHIM_CUDA_TIME_ALLOWANCE_H

#include "cuda/process.h"

enum { ALLOWANCE_LAUNCHES = 512 }; /* at most from one */

/* All zero: none. Of one device: a thread that turns to another gives the rest back first. */
struct allowance {
    uint64_t epoch;      /* of the process that paid; a forked child is another */
    uint64_t credit_ns;  /* left */
    uint64_t granted_ns; /* what was left when it was last paid for */
    uint64_t size_ns;    /* asked for then; taken is a random part of it */
    uint64_t taken_ns;   /* when, by clock_now() */
    uint64_t price;      /* of a nanosecond then (core/time/limiter.h) */
    uint32_t device;
    uint32_t launches; /* since */
};

extern _Thread_local struct allowance allowance;

/* What a launch that takes so long costs here; 0 before the first payment. */
static inline uint64_t allowance_price(uint64_t ns)
{
    return limiter_price(allowance.price, ns);
}

/* Is there enough for a launch of this cost, of this process? All zero is enough for nothing, so
 * that a process with credit is attached. */
static inline bool allowance_covers(const struct process *process, uint64_t cost)
{
    return cost < allowance.credit_ns && allowance.launches < ALLOWANCE_LAUNCHES &&
           allowance.epoch == process_epoch(process);
}

/* Pay for it. Only on the device that it is of. */
static inline void allowance_pay(uint64_t cost)
{
    allowance.credit_ns -= cost;
    allowance.launches++;
}

/* Make the thread's allowance one of this process and device; what it had of another is given
 * back. */
void allowance_turn(struct process *process, unsigned device);

/* What to pay for, so that there is enough for a launch of this cost and some more; 0 if there is
 * enough. */
uint64_t allowance_ask(struct limiter_terms terms, uint64_t now, uint64_t cost);

/* The same for this launch alone: one that goes because it was not to wait any longer, and not
 * because there is GPU time for it, takes nothing along. */
uint64_t allowance_ask_one(uint64_t cost);

/* That was paid: take the launch from it. Returns the work done since the last payment, with it. */
uint64_t allowance_take(struct limiter_terms terms, uint64_t now, uint64_t paid, uint64_t cost);

/* A launch failed that was paid for on this thread. */
static inline void allowance_return(uint64_t cost)
{
    allowance.credit_ns += cost;
}

#endif
