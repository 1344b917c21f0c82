/* Device memory of this process: allocated, charged to the shared ledger, freed. */
#ifndef SIM_CUDA_MEMORY_MEMORY_H
#define SIM_CUDA_MEMORY_MEMORY_H

#include "cuda/pool/pool.h"

/* Allocate `wanted->bytes` in `wanted->context`; takes driver->mutex. */
CUresult memory_allocate(struct driver *driver, struct allocation wanted, bool below_4g,
                         CUdeviceptr *out);

CUresult memory_free(struct driver *driver, CUdeviceptr address);

/* The same ordered by a stream, for what came from a pool. */
CUresult memory_free_in(struct driver *driver, CUdeviceptr address, struct pool_stream stream);

/* Free everything a context holds; driver->mutex is held. */
void memory_free_all(struct driver *driver, const struct context *context);

/* Its pinned memory, too: what it registered is the program's again. */
void host_memory_free_all(struct driver *driver, const struct context *context);

/* Is all of it in one piece of pinned memory? Then it can be used as device memory is.
 * driver->mutex is held. */
bool host_memory_has(const struct driver *driver, CUdeviceptr address, uint64_t bytes);

/* How long a row is in memory and what all of them take; CUDA_ERROR_INVALID_VALUE if too much. */
CUresult memory_rows(size_t width, size_t height, unsigned element, size_t *pitch, uint64_t *bytes);

/* Free and total bytes of a device, over all processes. */
void memory_figures(struct driver *driver, CUdevice device, uint64_t *free_bytes,
                    uint64_t *total_bytes);

#endif
