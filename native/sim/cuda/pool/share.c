/* Pools between processes: a pool travels as a file descriptor, an allocation as a few words.
 *
 * The descriptor is the file whose pages the pool's memory is, so both see the same bytes. Its size
 * says nothing of the device: an imported pool passes for one on device 0. */
#include "cuda/memory/addresses.h"
#include "cuda/memory/location.h"
#include "cuda/pool/pool.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { POSIX_FILE = 1 };

#define MAGIC UINT64_C(0x6c6f6f70)

/* What an exported allocation is; travels in the driver's opaque 64 bytes. */
struct exported {
    uint64_t magic;
    uint64_t inode; /* of the pool's file */
    uint64_t offset;
    uint64_t bytes;
};

_Static_assert(sizeof(struct exported) <= sizeof(CUmemPoolPtrExportData), "it travels in there");

static uint64_t inode_of(int file)
{
    struct stat status;
    return fstat(file, &status) == 0 ? status.st_ino : 0;
}

API CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool pool, int type,
                                              unsigned long long flags)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || !is_pool(pool) || type != POSIX_FILE || flags != 0 || pool->imported ||
        pool->file < 0)
        return CUDA_ERROR_INVALID_VALUE;
    int copy = dup(pool->file);
    if (copy < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *(int *)out = copy;
    return CUDA_SUCCESS;
}

/* By the interface's habit the handle of a file is passed as if it were a pointer. */
API CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *handle, int type,
                                                unsigned long long flags)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    int file = (int)(intptr_t)handle;
    if (out == NULL || type != POSIX_FILE || flags != 0 || inode_of(file) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pool = (struct pool){
        .kind = POOL, .imported = true, .location = {LOCATION_DEVICE, 0}, .file = dup(file)};
    pthread_mutex_lock(&driver->mutex);
    pool_enter(driver, pool);
    pthread_mutex_unlock(&driver->mutex);
    *out = pool;
    return CUDA_SUCCESS;
}

/* Where in the pool's file an address is. */
static bool locate(const struct pool *pool, CUdeviceptr address, uint64_t *offset)
{
    for (const struct chunk *chunk = pool->chunks; chunk != NULL; chunk = chunk->next) {
        uint64_t inside = address - (uintptr_t)chunk->pages;
        if (address >= (uintptr_t)chunk->pages && inside < chunk->bytes) {
            *offset = chunk->file_offset + inside;
            return true;
        }
    }
    return false;
}

API CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr address)
{
    struct driver *driver;
    struct exported exported = {.magic = MAGIC};
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    const struct allocation *found = addresses_find(&driver->memory, address);
    const struct pool *pool = found != NULL ? found->pool : NULL;
    bool ours = pool != NULL && !pool->imported && pool->file >= 0 &&
                locate(pool, found->start, &exported.offset);
    if (ours) {
        exported.inode = inode_of(pool->file);
        exported.bytes = found->bytes;
    }
    pthread_mutex_unlock(&driver->mutex);
    if (ours)
        memcpy(out->reserved, &exported, sizeof exported);
    return ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Map the pages an exported allocation lies in: a chunk of one block, which is in use. */
static CUresult map(struct driver *driver, struct pool *pool, const struct exported *exported,
                    CUdeviceptr *out)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t inside = exported->offset % page;
    uint64_t size = (inside + exported->bytes + page - 1) / page * page;
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, pool->file,
                       (off_t)(exported->offset - inside));
    if (pages == MAP_FAILED)
        return CUDA_ERROR_INVALID_VALUE;
    struct allocation made = {.start = (uintptr_t)pages + inside,
                              .bytes = exported->bytes,
                              .pool = pool,
                              .number = driver_number(driver),
                              .committed = true};
    struct chunk *chunk = pool_add_chunk(pool, pages, size);
    if (chunk == NULL || addresses_insert(&driver->memory, &made) != 0) {
        if (chunk == NULL)
            munmap(pages, size);
        return CUDA_ERROR_OUT_OF_MEMORY; /* an entered chunk goes with the pool */
    }
    *chunk->blocks = (struct block){.start = made.start, .bytes = exported->bytes, .used = true};
    pool->live++;
    pool->used += made.bytes;
    *out = made.start;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool pool,
                                    CUmemPoolPtrExportData *data)
{
    struct driver *driver;
    struct exported exported;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || data == NULL || !is_pool(pool) || !pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&exported, data->reserved, sizeof exported);
    if (exported.magic != MAGIC || exported.inode != inode_of(pool->file))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    result = map(driver, pool, &exported, out);
    pthread_mutex_unlock(&driver->mutex);
    return result;
}
