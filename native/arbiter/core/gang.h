/* Containers whose kernels wait for one another on several GPUs, as those of collectives do.
 *
 * Such a kernel spins until the last of its group has begun, so a turn on one GPU is of use only
 * while the container has the others, too. So these GPUs are one turn for it, a gang's: it is
 * granted all of them at one moment, and loses all of them at one.
 *
 * Each GPU decides as ever (turns.h) among all that want it. Where the turn would be a gang's, that
 * GPU is ready for it, and goes on with whom it has meanwhile, so that none idles; once all GPUs of
 * the gang are ready they are granted. No GPU is kept for a gang, so gangs never wait for one
 * another. The turn ends on all GPUs as soon as it would on one.
 *
 * In its turn a gang is charged on each GPU what it used of the one that it used most: the others
 * could not have been used by others. So a container that says it runs collectives couples GPUs
 * that it has shares of, and pays for all of them; what neighbours have stays as their weights are.
 */
#ifndef ARBITER_CORE_GANG_H
#define ARBITER_CORE_GANG_H

#include "core/turns.h"

enum { TURNS_GANG_GPUS = 16 };

struct turns_seat {
    struct turns_gpu *gpu;
    int member;
};

/* One container: its places on different GPUs, all marked as `gang` there. */
struct turns_gang {
    struct turns_gang *next;
    unsigned count;
    struct turns_seat seats[TURNS_GANG_GPUS];
};

/* turns_decide() of all GPUs of these gangs, together. */
void gangs_decide(struct turns_gpu *const *gpus, unsigned count, const struct turns_gang *gangs,
                  uint64_t now);

#endif
