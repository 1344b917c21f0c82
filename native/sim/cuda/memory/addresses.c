#include "cuda/memory/addresses.h"
#include "cuda/graph/memory.h"
#include "cuda/virtual/virtual.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_32BIT
#define MAP_32BIT 0 /* not on this architecture: the result is checked */
#endif

static size_t page_round(uint64_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* Index of the first item that starts above `address`. */
static size_t upper_bound(const struct address_map *map, CUdeviceptr address)
{
    size_t low = 0, high = map->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (map->items[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct allocation *addresses_find(const struct address_map *map, CUdeviceptr address)
{
    size_t above = upper_bound(map, address);
    if (above == 0)
        return NULL;
    struct allocation *found = &map->items[above - 1];
    return address - found->start < found->bytes ? found : NULL;
}

int addresses_access(struct address_map *map, CUdeviceptr address, uint64_t bytes)
{
    struct allocation *item = addresses_find(map, address);
    for (; item != NULL; item++) {
        uint64_t room = item->bytes - (address - item->start);
        int error = addresses_commit(item);
        if (error != 0 || bytes <= room)
            return error;
        address += room;
        bytes -= room;
        bool more = item + 1 < map->items + map->count && item[1].start == address;
        if (!more || item->mapping == NULL || item[1].mapping == NULL)
            return -EFAULT;
    }
    return -ENOENT;
}

static int make_room(struct address_map *map)
{
    if (map->count < map->capacity)
        return 0;
    size_t capacity = map->capacity > 0 ? 2 * map->capacity : 64;
    struct allocation *items = realloc(map->items, capacity * sizeof *items);
    if (items == NULL)
        return -ENOMEM;
    map->items = items;
    map->capacity = capacity;
    return 0;
}

static void *reserve(size_t size, bool managed, bool below_4g)
{
    int access = managed ? PROT_READ | PROT_WRITE : PROT_NONE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (below_4g ? MAP_32BIT : 0);
    void *start = mmap(NULL, size, access, flags, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    if (below_4g && (uintptr_t)start + size > UINT32_MAX) {
        munmap(start, size);
        return NULL;
    }
    return start;
}

/* Addresses of a multiple of the quantum, whose size that is too. */
static void *reserve_aligned(size_t size, size_t quantum, bool managed, bool below_4g)
{
    char *start = reserve(size + quantum, managed, below_4g);
    if (start == NULL)
        return NULL;
    size_t before = (quantum - (uintptr_t)start % quantum) % quantum;
    if (before > 0)
        munmap(start, before);
    munmap(start + before + size, quantum - before);
    return start + before;
}

CUdeviceptr addresses_reserve(size_t size, enum memory_kind kind)
{
    return (uintptr_t)reserve_aligned(size, size, kind == MEMORY_MANAGED, kind == MEMORY_LOW);
}

void addresses_clear(CUdeviceptr start, size_t size, enum memory_kind kind)
{
    int access = kind == MEMORY_MANAGED ? PROT_READ | PROT_WRITE : PROT_NONE;
    mmap((void *)(uintptr_t)start, size, access,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

int addresses_add(struct address_map *map, const struct allocation *wanted, bool below_4g,
                  CUdeviceptr *out)
{
    size_t size = wanted->block != NULL ? wanted->block->size : page_round(wanted->bytes);
    if (size < wanted->bytes || make_room(map) != 0)
        return -ENOMEM;
    void *start = wanted->block != NULL ? reserve_aligned(size, (size_t)GRAPH_QUANTUM, false, false)
                                        : reserve(size, wanted->managed, below_4g);
    if (start == NULL)
        return -ENOMEM;
    struct allocation placed = *wanted;
    placed.start = (CUdeviceptr)(uintptr_t)start;
    placed.mapped = size;
    placed.committed = wanted->managed;
    *out = placed.start;
    return addresses_insert(map, &placed);
}

int addresses_insert(struct address_map *map, const struct allocation *placed)
{
    if (make_room(map) != 0)
        return -ENOMEM;
    size_t index = upper_bound(map, placed->start);
    struct allocation *item = &map->items[index];
    memmove(item + 1, item, (map->count - index) * sizeof *item);
    map->count++;
    *item = *placed;
    return 0;
}

void addresses_take(struct address_map *map, struct allocation *item)
{
    size_t after = map->count - (size_t)(item - map->items) - 1;
    memmove(item, item + 1, after * sizeof *item);
    map->count--;
}

bool addresses_remove(struct address_map *map, CUdeviceptr start, struct allocation *out)
{
    struct allocation *found = addresses_find(map, start);
    if (found == NULL || found->start != start || found->mapping != NULL)
        return false;
    *out = *found;
    if (found->mapped > 0 && found->taken.slab == NULL)
        munmap((void *)(uintptr_t)found->start, found->mapped);
    if (found->file > 0)
        close(found->file);
    addresses_take(map, found);
    return true;
}

/* Whole pages: of two allocations of a pool that share one, either makes it accessible. */
int addresses_commit(struct allocation *allocation)
{
    uintptr_t start = allocation->start / page_round(1) * page_round(1);
    if (allocation->committed)
        return 0;
    if (allocation->mapping != NULL)
        return mapping_commit(allocation);
    size_t size = page_round(allocation->start + allocation->bytes - start);
    if (mprotect((void *)start, size, PROT_READ | PROT_WRITE) != 0)
        return -errno;
    allocation->committed = true;
    return 0;
}
