/* Who is charged for memory, by the location and the type of allocation that a program asks for.
 *
 * A locality domain (CUDA 13.4) is a part of one device. Managed memory may move to any device: as
 * with cuMemAllocManaged the current one is charged, unless the location is a device. A location
 * or a type that came after this was written may be the GPU's, so the current device is charged:
 * too much, perhaps, never too little.
 *
 * Pure. Any thread.
 */
#ifndef SHIM_CORE_MEMORY_LOCATION_H
#define SHIM_CORE_MEMORY_LOCATION_H

#ifndef VCUDA_CDEF
#include <stdbool.h>
#endif

enum payer {
    PAYER_NOBODY, /* host memory, or what every driver refuses */
    PAYER_DEVICE, /* that of `ordinal` */
    PAYER_CURRENT,
};

struct location {
    enum payer payer;
    int ordinal;
    bool managed;
    bool unknown; /* came after this was written */
};

/* allocation: CU_MEM_ALLOCATION_TYPE_*; type: CU_MEM_LOCATION_TYPE_*; id: as CUmemLocation has it,
 * the bytes of a locality domain as one number. */
struct location location_of(int allocation, int type, int id);

#endif
