/* Device addresses: real addresses of this process that nothing can be read from.
 *
 * Each allocation gets its own pages, without access and without memory behind them, so that a GPU
 * of 80 GB fits on a small host and a program that mistakes a device pointer for its own crashes as
 * it would with a real driver. Those of graphs begin at multiples of their quantum. Pages become
 * accessible when something is copied to them. driver->mutex guards the map.
 */
#ifndef SIM_CUDA_MEMORY_ADDRESSES_H
#define SIM_CUDA_MEMORY_ADDRESSES_H

#include "cuda/driver.h"

/* Reserve addresses for `wanted->bytes` and enter it in the map. below_4g: for pointers of 32 bit.
 * 0, or -ENOMEM. */
int addresses_add(struct address_map *map, const struct allocation *wanted, bool below_4g,
                  CUdeviceptr *out);

/* Reserve addresses that begin at a multiple of `size`, a power of two. 0 without memory. */
CUdeviceptr addresses_reserve(size_t size, enum memory_kind kind);

/* Make them as they were when they were reserved. */
void addresses_clear(CUdeviceptr start, size_t size, enum memory_kind kind);

/* Enter what has its addresses already; they must be free in the map. 0, or -ENOMEM. */
int addresses_insert(struct address_map *map, const struct allocation *placed);

/* Take an item out of the map; its pages stay. */
void addresses_take(struct address_map *map, struct allocation *item);

/* Give up the allocation that starts at `start`: what it was. False if none does that can be freed.
 */
bool addresses_remove(struct address_map *map, CUdeviceptr start, struct allocation *out);

/* The allocation that `address` lies in, or NULL. */
struct allocation *addresses_find(const struct address_map *map, CUdeviceptr address);

/* Make `bytes` from `address` on accessible: of one allocation, or of mappings side by side. 0, or
 * a negated errno. */
int addresses_access(struct address_map *map, CUdeviceptr address, uint64_t bytes);

/* Make the allocation's pages accessible. 0, or a negated errno. */
int addresses_commit(struct allocation *allocation);

#endif
