/* The hooked functions of libcuda, and which of them stands for an answer of cuGetProcAddress. */
#ifndef SHIM_CUDA_HOOK_H
#define SHIM_CUDA_HOOK_H

#include <stdatomic.h>
#include <stdbool.h>

enum {
    HOOKS_CHECKED = 13050, /* the newest CUDA whose variants the table was checked against */
};

/* One hooked export. The table of them is generated (native/table/generate.py). */
struct hook {
    void *_Atomic entry;  /* the driver's own; NULL: it has none, or the table is not resolved */
    void *function;       /* ours */
    const char *symbol;   /* cuMemAlloc_v2 */
    const char *family;   /* cuMemAlloc: what cuGetProcAddress is asked for */
    const char *kind;     /* of native/table/cuda.hooks: alloc */
    int since;            /* asked for with this version or a newer one; 0: never */
    int since_per_thread; /* the same, with per-thread default streams */
    bool paces;           /* about nothing but GPU time */
    bool essential;       /* without it a program allocates or launches past its limits */
};

/* The hook of an export of the driver; NULL if there is none. */
const struct hook *hook_at(const void *entry);

/* The hook of the variant that `family` means at `version`: the newest that is not newer and that
 * the driver has. NULL if there is none. */
const struct hook *hook_named(const char *family, int version, bool per_thread);

/* Any hook of this family; NULL if it has none. */
const struct hook *hook_family(const char *family);

#endif
