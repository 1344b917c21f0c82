/* Whose turn it is, and waiting for it. All want the lock held. */
#ifndef SIM_CLOCK_TURN_H
#define SIM_CLOCK_TURN_H

#include "clock/simclock.h"

void turn_lock(struct simclock *clock);
void turn_unlock(struct simclock *clock);

void turn_fall_asleep(struct simclock *clock, struct simclock_taker *taker, uint64_t deadline);

/* If nobody runs, who is to be woken first does. A taker that calls needs no waking; NULL: none. */
void turn_pass_on(struct simclock *clock, const struct simclock_taker *caller);

/* The same, after those are gone that say they are leaving and have, and once in a while all that
 * are dead, or set aside that are blocked; all: the dead in any case. */
void turn_look_round(struct simclock *clock, const struct simclock_taker *caller, bool all);

#endif
