/* What each container is charged for, and since when it wants the GPU. */
#ifndef ARBITER_CORE_ACCOUNT_H
#define ARBITER_CORE_ACCOUNT_H

#include "core/turns.h"

/* Charge all that was seen since the last step, and move the average of virtual times. */
void account_step(struct turns_gpu *gpu, uint64_t now);

static inline double least(double left, double right)
{
    return left < right ? left : right;
}

static inline double most(double left, double right)
{
    return left > right ? left : right;
}

static inline double since(uint64_t then, uint64_t now)
{
    return now > then ? (double)(now - then) : 0;
}

static inline bool is_capped(const struct turns_member *member)
{
    return member->ceiling < 0.995;
}

/* What an empty bucket holds before it is used again: more of a large one, which is empty for less
 * of the time, so that fewer of its turns are lost to hand-overs; a gang's cost all of its GPUs. */
static inline double refill(const struct turns_gpu *gpu, const struct turns_member *member)
{
    return member->gang ? gpu->rules.quantum_long : gpu->rules.refill * (1 + 3 * member->ceiling);
}

#endif
