/* What the driver takes of a GPU for one allocation: more than was asked for, where pages have a
 * size (page_bytes of struct sim_driver).
 *
 * What is larger than slab_most_bytes takes whole pages. What is smaller has a place in a slab: one
 * page, divided into places of one power of two, for one context and one kind of memory. A slab
 * stays until its last place is given back. So a GPU of 2 MiB pages that is asked for 1.125 MiB
 * gives 2 MiB, and of three times 600 KiB it gives 4 MiB. Without pages all is as asked.
 *
 * driver->mutex is held by whoever calls the functions here.
 */
#ifndef SIM_CUDA_MEMORY_TAKEN_H
#define SIM_CUDA_MEMORY_TAKEN_H

#include "cuda/driver.h"

struct slab {
    struct slab *next; /* of all that the process has */
    struct context *context;
    enum memory_kind kind;
    unsigned used;     /* places */
    uint64_t place;    /* bytes of each */
    uint64_t page;     /* and of all */
    CUdeviceptr start; /* its addresses, in line with the page's size */
    uint8_t taken[];   /* by place */
};

/* Take memory that ends with `context`. CUDA_ERROR_OUT_OF_MEMORY, and nothing is taken. */
CUresult taken_begin(struct driver *driver, struct context *context, enum memory_kind kind,
                     uint64_t bytes, struct taken *taken);

/* Give it back, once. Of a slab, the addresses are empty again. */
void taken_end(struct driver *driver, struct taken *taken);

#endif
