/* The calling thread as a taker of the clock that SIM_CLOCK names. */
#ifndef SIM_PRELOAD_SELF_H
#define SIM_PRELOAD_SELF_H

#include "clock/simclock.h"

#define OVERRIDE __attribute__((visibility("default")))

/* NULL: there is no such clock, and everything is as without us. */
extern struct simclock *self_clock;

/* The time; a thread that was set aside waits for its turn first. */
uint64_t self_look(void);

void self_sleep_until(uint64_t deadline);

/* The same, but simclock_wake_all ends it. */
void self_sleep_waking(uint64_t deadline);

/* A row for a thread or process that is about to begin; -1 if there is no clock or no room. */
int self_reserve(void);
void self_unreserve(int taker);

/* In the new thread: it is this row, and waits for its turn. */
void self_begin(int taker);

/* The thread, or the process, ends. */
void self_end(void);

/* The C library's own, behind ours. */
void *self_next(const char *name);

#endif
