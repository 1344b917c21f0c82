/* What a cubin says of its functions: registers, memory of each kind, threads in a block.
 *
 * A cubin is an ELF file. Registers stand in the section header of a function's code, static shared
 * memory is a section of its own, constants are one section of the module, and a table of tagged
 * values (`.nv.info`) has the rest.
 */
#ifndef SIM_CUDA_MODULE_CUBIN_H
#define SIM_CUDA_MODULE_CUBIN_H

#include <stdint.h>

struct cubin_function {
    uint32_t registers;   /* of a thread; 0: the cubin does not say */
    uint32_t local;       /* bytes of a thread */
    uint32_t shared;      /* bytes of a block, static */
    uint32_t constants;   /* bytes of the module */
    uint32_t max_threads; /* of a block; 0: no bound declared */
};

/* All zero if the image is no cubin or has no such function. */
struct cubin_function cubin_function(const void *image, const char *name);

/* Bytes of a cubin from its first to the end of its last part; 0 if the image is none. */
uint64_t cubin_bytes(const void *image);

#endif
