/* Modules and their functions. Code is not looked into: any image loads, and has any function. */
#ifndef SIM_CUDA_MODULE_H
#define SIM_CUDA_MODULE_H

#include "cuda/driver.h"

struct function {
    uint32_t kind;
    struct module *module;
    struct function *next;
    int dynamic_shared; /* the attribute that a program may set */
    bool spins;         /* takes the nanoseconds it runs as its first parameter */
    char name[];
};

/* Also a library, and its functions also kernels. */
struct module {
    uint32_t kind;
    struct function *functions;
};

CUresult module_load(const void *image, struct module **out);
CUresult module_unload(struct module *module);

/* The function of that name: the same object each time. */
CUresult module_function(struct module *module, const char *name, struct function **out);

#endif
