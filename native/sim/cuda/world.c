/* What a shim asks its driver for to live by a simulation's clock: no real driver has it. */
#include "vcuda_turns.h"
#include <dlfcn.h>

const struct vcuda_world *vcudaSimulatedWorld(void);

/* NULL: the system's clock. */
__attribute__((visibility("default"))) const struct vcuda_world *vcudaSimulatedWorld(void)
{
    const struct vcuda_world *(*preloaded)(void) =
        (const struct vcuda_world *(*)(void))dlsym(RTLD_DEFAULT, "simclock_world");
    return preloaded == NULL ? NULL : preloaded();
}
