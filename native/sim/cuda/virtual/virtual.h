/* Virtual memory management: addresses, physical memory and the mappings between them are separate.
 *
 * Physical memory is known by a handle and charged to the ledger; it lives while a handle, a
 * mapping or a multicast binding refers to it. A mapping lies in the address map as an allocation
 * does, but has its contents from the physical memory: a memory file, made when the first byte is
 * needed or when the memory is exported, so that all mappings, in all processes, show the same
 * bytes. driver->mutex guards everything here.
 *
 * Unlike the real driver: an offset into the memory may be mapped; access is set on whole mappings
 * only; contents need a file descriptor for each physical memory that has any; multicast objects
 * have no contents, and their bindings are known to their own process alone.
 */
#ifndef SIM_CUDA_VIRTUAL_VIRTUAL_H
#define SIM_CUDA_VIRTUAL_VIRTUAL_H

#include "cuda/memory/addresses.h"

#define VIRTUAL_GRANULARITY (UINT64_C(2) << 20)

enum { NO_ACCESS = 0, READ = 1, READ_WRITE = 3 };
enum { ON_HOST = -1, NO_FILE = -1, NO_DEVICE = -1 };

enum handle_type { FILE_DESCRIPTOR = 1 };

/* Memory bound to a multicast object; refers to it. */
struct binding {
    struct binding *next;
    uint64_t offset;
    uint64_t bytes;
    struct physical *memory;
};

/* device: ON_HOST costs no device memory. handles: how often its handle is to be released. */
struct physical {
    CUmemGenericAllocationHandle handle;
    uint64_t number;
    int device;
    uint64_t bytes;
    unsigned handles;
    unsigned references; /* handles, mappings and bindings */
    int file;
    uint64_t share; /* identity among processes (core/share.h); 0: this process's alone */
    bool multicast;
    uint32_t team; /* of a multicast object: the devices added, a bit each */
    unsigned team_size;
    struct binding *bindings;
    CUmemAllocationProp properties;
};

struct mapping {
    struct physical *physical;
    uint64_t offset;
    uint8_t access[SIM_GPUS]; /* CU_MEM_ACCESS_FLAGS_* by device */
};

static inline bool virtual_aligned(uint64_t value)
{
    return value % VIRTUAL_GRANULARITY == 0;
}

/* The reservation that all of `bytes` from `address` on lies in, or NULL. */
const struct reservation *reservation_of(const struct driver *driver, CUdeviceptr address,
                                         uint64_t bytes);

/* Enter a physical memory: it gets its handle, and its first reference. 0, or -ENOMEM. */
int physical_enter(struct driver *driver, struct physical *physical);

/* What a handle that is not released stands for, or NULL. */
struct physical *physical_find(const struct driver *driver, CUmemGenericAllocationHandle handle);

/* One reference less; with the last one the memory goes. */
void physical_drop(struct driver *driver, struct physical *physical);

/* The memory file behind it, made if there is none yet. 0, or a negated errno. */
int physical_back(struct physical *physical);

/* Make a mapping's pages those of its physical memory. 0, or a negated errno. */
int mapping_commit(struct allocation *item);

/* May any device touch it? */
bool mapping_accessible(const struct mapping *mapping);

/* The mapping at `address`, or NULL. */
static inline struct allocation *mapping_at(struct driver *driver, CUdeviceptr address)
{
    struct allocation *item = addresses_find(&driver->memory, address);
    return item != NULL && item->mapping != NULL ? item : NULL;
}

/* Take one out of a multicast object's bindings. */
void physical_unbind(struct driver *driver, struct binding **at);

#endif
