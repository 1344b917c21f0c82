/* How much device memory a program image takes when it is loaded. */
#ifndef SIM_CORE_IMAGE_H
#define SIM_CORE_IMAGE_H

#ifndef VCUDA_CDEF
#include <stdint.h>
#endif

/* Code and constants, as the image has them; and variables, which take their size wherever they
 * are declared. */
struct image_sizes {
    uint64_t code;
    uint64_t variables;
};

/* Of a cubin, of the text of PTX, or of a fat binary; anything else is taken for text. */
struct image_sizes image_sizes(const void *image);

#endif
