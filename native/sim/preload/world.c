/* The world of turns (vcuda_turns.h) by the page's clock, for whoever looks it up by this name. */
#include "preload/self.h"
#include "vcuda_turns.h"

static void wait_for_change(const _Atomic(uint32_t) *word, uint32_t expected, uint64_t deadline)
{
    while (simclock_peek(self_clock) < deadline &&
           (word == NULL || atomic_load_explicit(word, memory_order_acquire) == expected)) {
        self_sleep_waking(deadline);
        if (word == NULL)
            return;
    }
}

static void wake(_Atomic(uint32_t) *word)
{
    (void)word; /* who sleeps for another one looks, and sleeps on */
    simclock_wake_all(self_clock);
}

OVERRIDE const struct vcuda_world *simclock_world(void);

OVERRIDE const struct vcuda_world *simclock_world(void)
{
    static const struct vcuda_world world = {self_look, wait_for_change, wake};
    return self_clock == NULL ? NULL : &world;
}
