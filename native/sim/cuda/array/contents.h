/* What is in an array, for copies: rows without padding in memory of the host, real from the first
 * copy on. Kernels are not simulated, so nobody else looks. Of formats in several planes or in
 * compressed blocks nothing is kept. */
#ifndef SIM_CUDA_ARRAY_CONTENTS_H
#define SIM_CUDA_ARRAY_CONTENTS_H

#include "cuda/array/array.h"
#include "cuda/graph/api.h"

/* Is the block of that extent on this side, which is an array, all inside it?
 * CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED without contents.
 */
CUresult array_covers(const struct copy_side *side, const struct copy_params *params);

/* Where a row of that side begins; it is covered. NULL without memory. Takes driver->mutex. */
void *array_row(struct driver *driver, const struct copy_side *side, size_t y, size_t z);

/* The device of an array that is known. */
int array_device(const struct copy_side *side);

#endif
