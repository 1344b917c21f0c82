/* The driver's own library, which lies beside the shim under the name VCUDA_REAL_SONAME. */
#ifndef SHIM_RUNTIME_REAL_H
#define SHIM_RUNTIME_REAL_H

#include <stdbool.h>

/* A function of the driver itself, never one of ours; NULL if it has none. Any thread. */
void *real_symbol(const char *name);

/* Is it bound to itself, as each libcuda known is, so that its own calls never come by us? */
bool real_is_symbolic(void);

#endif
