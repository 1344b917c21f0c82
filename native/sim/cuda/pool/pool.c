#include "cuda/pool/pool.h"
#include "core/ledger.h"
#include "core/work.h"
#include "cuda/memory/addresses.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return bytes > UINT64_MAX - unit ? 0 : (bytes + unit - 1) / unit * unit;
}

void pool_enter(struct driver *driver, struct pool *pool)
{
    pool_permit_own(pool);
    pool->next = driver->made_pools;
    driver->made_pools = pool;
}

static void raise_high(struct pool *pool)
{
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
}

static int charge(struct driver *driver, const struct pool *pool, int device, uint64_t bytes)
{
    if (device < 0)
        return 0;
    unsigned gpu = driver->gpus[device];
    uint64_t now = sim_lock(driver->state);
    int result = ledger_charge(driver->state, driver->process, gpu, bytes, now);
    if (result == 0 && pool->managed)
        driver->process->managed[gpu] += bytes;
    sim_unlock(driver->state);
    return result;
}

static void give_back(struct driver *driver, const struct pool *pool, int device, uint64_t bytes)
{
    if (device < 0)
        return;
    unsigned gpu = driver->gpus[device];
    sim_lock(driver->state);
    ledger_release(driver->process, gpu, bytes);
    if (pool->managed)
        driver->process->managed[gpu] -= bytes;
    sim_unlock(driver->state);
}

/* Can the program touch its memory? */
static bool is_plain_memory(const struct pool *pool)
{
    return pool->managed || pool->device < 0;
}

/* Is the work done that the free of a block waits for? */
static bool done(struct driver *driver, struct block *block)
{
    if (block->reach.end > 0 && queue_reached(driver, block->device, block->reach))
        block->reach = (struct sim_reach){0};
    return block->reach.end == 0;
}

static bool follows(const struct block *block, const struct pool_stream *stream)
{
    uint64_t lanes = block->reach.lanes;
    unsigned lane;
    bool behind = block->device == stream->device;
    while (behind && work_take_lane(&lanes, &lane))
        behind = stream->followed[lane] >= block->reach.end;
    return behind;
}

/* May it be taken? by: the policies that hold, a bit each. */
static bool usable(struct driver *driver, struct block *block, const struct pool_stream *stream,
                   unsigned by)
{
    if (block->used)
        return false;
    return block->reach.end == 0 || (by & 1U << REUSE_INTERNAL) != 0 ||
           (block->device == stream->device && block->stream == stream->number) ||
           ((by & 1U << REUSE_FOLLOW_EVENT) != 0 && follows(block, stream)) ||
           ((by & 1U << REUSE_OPPORTUNISTIC) != 0 && done(driver, block));
}

/* Is there room from this block on? */
static bool fits(struct driver *driver, struct block *block, uint64_t bytes,
                 const struct pool_stream *stream, unsigned by)
{
    uint64_t run = 0;
    for (; run < bytes && block != NULL && usable(driver, block, stream, by); block = block->next)
        run += block->bytes;
    return run >= bytes;
}

static struct block *first_fit(struct driver *driver, struct pool *pool, uint64_t bytes,
                               const struct pool_stream *stream, unsigned by)
{
    for (struct chunk *chunk = pool->chunks; chunk != NULL; chunk = chunk->next)
        for (struct block *block = chunk->blocks; block != NULL; block = block->next)
            if (fits(driver, block, bytes, stream, by))
                return block;
    return NULL;
}

struct chunk *pool_add_chunk(struct pool *pool, void *pages, uint64_t bytes)
{
    struct chunk *chunk = calloc(1, sizeof *chunk);
    struct block *block = calloc(1, sizeof *block);
    struct chunk **end = &pool->chunks;
    if (chunk == NULL || block == NULL) {
        free(chunk);
        free(block);
        return NULL;
    }
    *block = (struct block){.start = (uintptr_t)pages, .bytes = bytes};
    *chunk = (struct chunk){.pages = pages, .bytes = bytes, .blocks = block};
    while (*end != NULL)
        end = &(*end)->next;
    *end = chunk;
    return chunk;
}

static void *map(struct pool *pool, uint64_t bytes)
{
    int flags = MAP_NORESERVE | (pool->file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
    off_t offset = pool->file < 0 ? 0 : (off_t)pool->file_end;
    if (pool->file >= 0 && ftruncate(pool->file, offset + (off_t)bytes) != 0)
        return NULL;
    int access = is_plain_memory(pool) ? PROT_READ | PROT_WRITE : PROT_NONE;
    void *pages = mmap(NULL, bytes, access, flags, pool->file, offset);
    if (pages == MAP_FAILED)
        return NULL;
    pool->file_end += bytes;
    return pages;
}

/* A new chunk that has room for `bytes`: its one block; NULL if there is no memory for it. */
static struct block *grow(struct driver *driver, struct pool *pool, uint64_t bytes, int user)
{
    int device = pool->device < 0 && pool->managed ? user : pool->device;
    uint64_t size = round_up(bytes, POOL_GRANULARITY);
    uint64_t bound = pool->max_size > 0 ? pool->max_size : UINT64_MAX;
    if (size == 0 || size > bound || pool->reserved > bound - size ||
        charge(driver, pool, device, size))
        return NULL;
    void *pages = map(pool, size);
    struct chunk *chunk = pages != NULL ? pool_add_chunk(pool, pages, size) : NULL;
    if (chunk == NULL) {
        if (pages != NULL)
            munmap(pages, size);
        give_back(driver, pool, device, size);
        return NULL;
    }
    chunk->device = device;
    chunk->file_offset = pool->file_end - size;
    pool->reserved += size;
    return chunk->blocks;
}

/* Leave what is not needed of a block as a block of its own; without memory it stays whole. */
static void divide(struct block *block, uint64_t bytes)
{
    struct block *rest = block->bytes > bytes ? calloc(1, sizeof *rest) : NULL;
    if (rest == NULL)
        return;
    *rest = *block;
    rest->start += bytes;
    rest->bytes -= bytes;
    block->bytes = bytes;
    block->next = rest;
}

/* Make one block of exactly so much; what remains of the last one waits for what it waited for. */
static void carve(struct block *block, uint64_t bytes)
{
    while (block->bytes < bytes) {
        struct block *next = block->next;
        divide(next, bytes - block->bytes);
        block->bytes += next->bytes;
        block->next = next->next;
        free(next);
    }
    divide(block, bytes);
}

/* The taker has to wait for the work before the frees of what it takes. */
static void wait_for_frees(const struct block *block, uint64_t bytes, struct pool_stream *stream)
{
    for (uint64_t run = 0; run < bytes; run += block->bytes, block = block->next)
        if (block->reach.end > 0 && block->device == stream->device &&
            block->stream != stream->number)
            lane_waits_add(&stream->waits, block->reach);
}

/* As drivers look for it: what can be had at once, else more of the GPU, else what can be waited
 * for. */
static struct block *find_room(struct driver *driver, struct pool *pool, uint64_t bytes,
                               struct pool_stream *stream)
{
    unsigned by = 0;
    for (int policy = REUSE_FOLLOW_EVENT; policy <= REUSE_INTERNAL; policy++)
        by |= pool->forbidden[policy] ? 0U : 1U << policy;
    struct block *block = first_fit(driver, pool, bytes, stream, by & ~(1U << REUSE_INTERNAL));
    if (block == NULL)
        block = grow(driver, pool, bytes, stream->device);
    if (block == NULL && (by & 1U << REUSE_INTERNAL) != 0) {
        block = first_fit(driver, pool, bytes, stream, by);
        if (block != NULL)
            wait_for_frees(block, bytes, stream);
    }
    return block;
}

CUresult pool_take(struct driver *driver, struct pool *pool, uint64_t bytes,
                   struct pool_stream *stream, CUdeviceptr *out)
{
    uint64_t size = round_up(bytes, POOL_ALIGNMENT);
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct block *block = size > 0 ? find_room(driver, pool, size, stream) : NULL;
    if (block == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct allocation made = {.start = block->start,
                              .bytes = bytes,
                              .pool = pool,
                              .number = driver_number(driver),
                              .managed = pool->managed,
                              .committed = is_plain_memory(pool)};
    if (addresses_insert(&driver->memory, &made) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    carve(block, size);
    block->used = true;
    pool->live++;
    pool->used += bytes;
    raise_high(pool);
    *out = made.start;
    return CUDA_SUCCESS;
}

static struct block *find(const struct pool *pool, CUdeviceptr start)
{
    for (struct chunk *chunk = pool->chunks; chunk != NULL; chunk = chunk->next)
        for (struct block *block = chunk->blocks; block != NULL; block = block->next)
            if (block->start == start)
                return block;
    return NULL;
}

static void drop(struct chunk *chunk)
{
    for (struct block *next, *block = chunk->blocks; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    munmap(chunk->pages, chunk->bytes);
    free(chunk);
}

/* Also notes of each block whether it is. */
static bool all_free(struct driver *driver, struct chunk *chunk)
{
    bool all = true;
    for (struct block *block = chunk->blocks; block != NULL; block = block->next)
        all &= !block->used && done(driver, block);
    return all;
}

/* What was imported goes as soon as it is free; what a pool has itself, while `keep` remain. */
static bool can_go(struct driver *driver, const struct pool *pool, struct chunk *chunk,
                   uint64_t keep)
{
    return (pool->imported || pool->reserved >= chunk->bytes + keep) && all_free(driver, chunk);
}

void pool_trim(struct driver *driver, struct pool *pool, uint64_t keep)
{
    struct chunk **place = &pool->chunks;
    keep = keep < UINT64_MAX / 2 ? keep : UINT64_MAX / 2; /* no sum with it overflows */
    while (*place != NULL) {
        struct chunk *chunk = *place;
        if (!can_go(driver, pool, chunk, keep)) {
            place = &chunk->next;
            continue;
        }
        *place = chunk->next;
        if (!pool->imported) {
            pool->reserved -= chunk->bytes;
            give_back(driver, pool, chunk->device, chunk->bytes);
        }
        drop(chunk);
    }
}

void pool_end_if_unused(struct driver *driver, struct pool *pool)
{
    struct pool **place = &driver->made_pools;
    if (pool->kind == POOL || pool->live > 0)
        return;
    pool_trim(driver, pool, 0);
    if (pool->chunks != NULL)
        return; /* the work before the last free is not done */
    if (pool->file >= 0)
        close(pool->file);
    while (*place != NULL && *place != pool)
        place = &(*place)->next;
    if (*place != NULL)
        *place = pool->next;
    pool->file = -1; /* the struct stays, so that a late use of the handle is refused */
}

void pool_give(struct driver *driver, const struct allocation *gone, struct pool_stream stream)
{
    struct pool *pool = gone->pool;
    struct block *block = find(pool, gone->start);
    block->used = false;
    block->device = stream.device;
    block->stream = stream.number;
    bool at_once = pool->imported || stream.device < 0;
    block->reach = at_once ? (struct sim_reach){0} : stream.reach;
    pool->live--;
    pool->used -= gone->bytes;
    if (pool->imported)
        pool_trim(driver, pool, 0);
    pool_end_if_unused(driver, pool);
}

static void synchronised(struct driver *driver, struct pool *pool, int device)
{
    for (struct chunk *chunk = pool->chunks; chunk != NULL; chunk = chunk->next)
        all_free(driver, chunk);
    if (pool->kind != POOL)
        pool_end_if_unused(driver, pool);
    else if ((pool->device == device || pool->device < 0) &&
             pool->reserved > pool->release_threshold)
        pool_trim(driver, pool, pool->release_threshold);
}

void pool_synchronised(struct driver *driver, int device)
{
    pthread_mutex_lock(&driver->mutex);
    synchronised(driver, &driver->default_pools[device], device);
    for (struct pool *next, *pool = driver->made_pools; pool != NULL; pool = next) {
        next = pool->next;
        synchronised(driver, pool, device);
    }
    pthread_mutex_unlock(&driver->mutex);
}
