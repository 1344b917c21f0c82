/* Modules and their functions. Any image loads, and has any function; of a cubin it is known what
 * its functions need (cubin.h). */
#ifndef SIM_CUDA_MODULE_H
#define SIM_CUDA_MODULE_H

#include "cuda/cubin.h"
#include "cuda/driver.h"

struct function {
    uint32_t kind;
    struct module *module;
    struct function *next;
    struct cubin_function needs;
    int dynamic_shared; /* the attribute that a program may set */
    int carveout;       /* likewise; -1: the driver's choice */
    bool spins;         /* takes the nanoseconds it runs as its first parameter */
    char name[];
};

/* Also a library, and its functions also kernels. */
struct module {
    uint32_t kind;
    void *cubin; /* a copy of the image; NULL if it was no cubin */
    struct function *functions;
};

CUresult module_load(const void *image, struct module **out);
CUresult module_unload(struct module *module);

/* The function of that name: the same object each time. */
CUresult module_function(struct module *module, const char *name, struct function **out);

/* Whether a block of so many threads and bytes of dynamic shared memory can run:
 * CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES or CUDA_ERROR_INVALID_VALUE if not. */
CUresult function_fits(const struct function *function, uint64_t threads, unsigned shared);

#endif
