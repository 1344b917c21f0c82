/* The world of turns (vcuda_turns.h) by a virtual clock, for threads of its conductor's process. */
#ifndef SIM_MANAGER_WORLD_H
#define SIM_MANAGER_WORLD_H

#include "clock/simclock.h"
#ifdef VCUDA_CDEF
struct vcuda_world { /* as in vcuda_turns.h */
    uint64_t (*now)(void);
    void (*wait)(const uint32_t *word, uint32_t expected, uint64_t deadline);
    void (*wake)(uint32_t *word);
};
#else
#include "vcuda_turns.h"
#endif

/* One at a time, by the page that is named. A thread takes part from its first wait on, which
 * returns as soon as its turn has come, so that it looks at nothing older; it leaves when it ends.
 * Waking is for any thread, the conductor's too.
 * NULL: the one that was is over, within a tenth of a second. Whoever waits in it returns, takes no
 * part any more, and waits no longer than a millisecond of real time: it can be joined. To be
 * called before the page is closed. */
const struct vcuda_world *sim_world(struct simclock *page);

#endif
