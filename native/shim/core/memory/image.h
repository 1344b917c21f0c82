/* How much device memory a program image will take at least, where that can be read from it. */
#ifndef SHIM_CORE_MEMORY_IMAGE_H
#define SHIM_CORE_MEMORY_IMAGE_H

#ifndef VCUDA_CDEF
#include <stdint.h>
#endif

/* Of a cubin: what its sections occupy. Of the text of PTX: its variables. Of anything else 0: a
 * fat binary does not say which of its parts the driver will choose. The image must be readable as
 * far as it says it goes, as for the driver. */
uint64_t image_bytes(const void *image);

/* The same without the code of a cubin, which the driver may load only when it is launched. */
uint64_t image_variables(const void *image);

/* What to have room for before it is loaded: as above, with the code of a text, which the driver
 * compiles, taken to be no longer than the text; in pages of 64 KiB. */
uint64_t image_estimate(const void *image);

/* How large it may become on the device: a fat binary's own size, else image_bytes(). */
uint64_t image_extent(const void *image);

#endif
