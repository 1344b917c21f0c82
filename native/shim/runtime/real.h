/* The driver's own library, which lies beside the shim under the name VCUDA_REAL_SONAME. */
#ifndef SHIM_RUNTIME_REAL_H
#define SHIM_RUNTIME_REAL_H

/* A function of the driver itself, never one of ours; NULL if it has none. Any thread. */
void *real_symbol(const char *name);

#endif
