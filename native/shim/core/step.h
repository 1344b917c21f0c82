/* Steps between which a process may be killed: tests put something here, the shim nothing. */
#ifndef SHIM_CORE_STEP_H
#define SHIM_CORE_STEP_H

#ifndef SHIM_STEP
#define SHIM_STEP() ((void)0)
#endif

#endif
