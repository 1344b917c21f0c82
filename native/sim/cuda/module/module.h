/* Modules and their functions. Any image loads, and has any function; of a cubin it is known what
 * its functions need (cubin.h).
 *
 * What an image takes (image.h) it takes from the context it is loaded in, until it is unloaded or
 * the context ends; code in steps of CODE_STEP, and nothing where contexts take nothing. A library
 * is loaded in the context that is current, or else in the first that one of its kernels is asked
 * or launched in. A simplification: a real driver loads it in each context that uses it. With
 * CUDA_MODULE_LOADING=LAZY in the environment no module is loaded before one of its kernels is
 * launched.
 */
#ifndef SIM_CUDA_MODULE_MODULE_H
#define SIM_CUDA_MODULE_MODULE_H

#include "core/image.h"
#include "cuda/driver.h"
#include "cuda/module/cubin.h"

/* How the launches that came before cuLaunchKernel find a function (module/legacy_launch.c). */
struct set_launch {
    unsigned block_x, block_y, block_z, shared;
    unsigned size; /* of the parameters */
    _Alignas(16) unsigned char parameters[4096];
};

struct function {
    uint32_t kind;
    struct module *module;
    struct function *next;
    struct cubin_function needs;
    int dynamic_shared; /* the attribute that a program may set */
    int carveout;       /* likewise; -1: the driver's choice */
    struct set_launch set;
    bool spins;      /* takes the nanoseconds it runs as its first parameter */
    bool collective; /* and with others like it waits for one another (launch.c) */
    bool jumps;      /* notes when it had the GPU (launch.c) */
    char name[];
};

/* Also a library, and its functions also kernels. */
struct module {
    uint32_t kind;
    void *cubin; /* a copy of the image; NULL if it was no cubin */
    struct function *functions;
    struct image_sizes sizes;
    struct context *context; /* that it is loaded in; NULL: in none yet */
    struct taken taken;      /* there */
    struct module *next;     /* of all that are loaded */
};

/* Load in a context, or nowhere yet if that is NULL. */
CUresult module_load(struct driver *driver, struct context *context, const void *image,
                     struct module **out);

/* See that it is loaded somewhere; the current context will do if there is one. */
CUresult module_enter(struct driver *driver, struct module *module);

/* A context ends, and with it what is loaded there; driver->mutex is held. */
void module_leave_all(struct driver *driver, const struct context *context);

/* The whole of a file, for the caller to free, with a 0 behind it, as text needs. */
CUresult module_read(const char *path, void **image, size_t *bytes);

CUresult module_unload(struct driver *driver, struct module *module);

/* How long a launch with these parameters takes, and whether its shape can be for the function. */
CUresult launch_duration(const struct function *function, void **parameters, void **extra,
                         uint64_t *duration_ns);
CUresult launch_check(const CUlaunchConfig *shape, const struct function *function);

/* The function of that name: the same object each time. */
CUresult module_function(struct module *module, const char *name, struct function **out);

#endif
