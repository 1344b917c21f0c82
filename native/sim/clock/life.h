/* Whether a taker's thread lives, as /proc shows it. */
#ifndef SIM_CLOCK_LIFE_H
#define SIM_CLOCK_LIFE_H

#include "clock/simclock.h"

enum life { LIFE_DEAD, LIFE_BLOCKED, LIFE_RUNS };

enum life life_of(const struct simclock_taker *taker);

/* Field 22 of its stat; 0 if it is not there. */
uint64_t life_start_time(int32_t pid, int32_t tid);

#endif
