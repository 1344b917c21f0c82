#include "cuda/memory/taken.h"
#include "core/ledger.h"
#include "cuda/memory/addresses.h"
#include <stdlib.h>
#include <sys/mman.h>

/* A real driver divides more finely; here each place has its own pages of the host. */
#define PLACE_LEAST UINT64_C(4096)

static const struct sim_driver *behaviour(const struct driver *driver)
{
    return &driver->state->machine.driver;
}

/* Enter pages in the ledger, or with `bytes` below 0 take them out. */
static int charge(struct driver *driver, const struct taken *taken, uint64_t bytes)
{
    unsigned gpu = driver->gpus[taken->context->device];
    uint64_t now = sim_lock(driver->state);
    int error = ledger_take(driver->state, driver->process, gpu, bytes, now);
    if (error == 0 && taken->kind == MEMORY_MANAGED)
        driver->process->managed[gpu] += bytes;
    sim_unlock(driver->state);
    return error;
}

static void release(struct driver *driver, const struct taken *taken, uint64_t bytes)
{
    unsigned gpu = driver->gpus[taken->context->device];
    sim_lock(driver->state);
    ledger_give(driver->process, gpu, bytes);
    if (taken->kind == MEMORY_MANAGED)
        driver->process->managed[gpu] -= bytes;
    sim_unlock(driver->state);
}

/* Code is no allocation of the program's. */
static void count(struct driver *driver, const struct taken *taken, int change)
{
    if (taken->kind == MEMORY_CODE)
        return;
    sim_lock(driver->state);
    driver->process->allocations[driver->gpus[taken->context->device]] += (uint64_t)change;
    sim_unlock(driver->state);
}

static uint64_t whole_pages(uint64_t bytes, uint64_t page)
{
    if (page == 0)
        return bytes;
    return bytes > UINT64_MAX - page ? UINT64_MAX : (bytes + page - 1) / page * page;
}

static uint64_t place_of(uint64_t bytes)
{
    uint64_t place = PLACE_LEAST;
    while (place < bytes)
        place *= 2;
    return place;
}

static uint64_t places(const struct slab *slab)
{
    return slab->page / slab->place;
}

static struct slab *with_room(struct driver *driver, const struct taken *taken, uint64_t place)
{
    for (struct slab *slab = driver->slabs; slab != NULL; slab = slab->next)
        if (slab->context == taken->context && slab->kind == taken->kind && slab->place == place &&
            slab->used < places(slab))
            return slab;
    return NULL;
}

static struct slab *new_slab(struct driver *driver, const struct taken *taken, uint64_t place)
{
    uint64_t page = behaviour(driver)->page_bytes;
    struct slab *slab = calloc(1, sizeof *slab + page / place);
    if (slab == NULL)
        return NULL;
    *slab = (struct slab){.next = driver->slabs,
                          .context = taken->context,
                          .kind = taken->kind,
                          .place = place,
                          .page = page,
                          .start = addresses_reserve(page, taken->kind)};
    if (slab->start == 0 || charge(driver, taken, page) != 0) {
        if (slab->start != 0)
            munmap((void *)(uintptr_t)slab->start, page);
        free(slab);
        return NULL;
    }
    return driver->slabs = slab;
}

static CUresult take_place(struct driver *driver, struct taken *taken, uint64_t bytes)
{
    uint64_t place = place_of(bytes), index = 0;
    struct slab *slab = with_room(driver, taken, place);
    if (slab == NULL)
        slab = new_slab(driver, taken, place);
    if (slab == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    while (slab->taken[index] != 0)
        index++;
    slab->taken[index] = 1;
    slab->used++;
    taken->slab = slab;
    taken->place = slab->start + index * place;
    return CUDA_SUCCESS;
}

CUresult taken_begin(struct driver *driver, struct context *context, enum memory_kind kind,
                     uint64_t bytes, struct taken *taken)
{
    CUresult result = CUDA_SUCCESS;
    *taken = (struct taken){.context = context, .kind = kind};
    if (bytes == 0)
        return result;
    if (bytes <= behaviour(driver)->slab_most_bytes && behaviour(driver)->page_bytes > 0) {
        result = take_place(driver, taken, bytes);
    } else {
        taken->bytes = whole_pages(bytes, behaviour(driver)->page_bytes);
        result = charge(driver, taken, taken->bytes) == 0 ? result : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        count(driver, taken, 1);
    else
        taken->bytes = 0;
    return result;
}

static void drop(struct driver *driver, struct slab *slab)
{
    struct slab **link = &driver->slabs;
    while (*link != slab)
        link = &(*link)->next;
    *link = slab->next;
    munmap((void *)(uintptr_t)slab->start, slab->page);
    free(slab);
}

static void give_place(struct driver *driver, const struct taken *taken)
{
    struct slab *slab = taken->slab;
    slab->taken[(taken->place - slab->start) / slab->place] = 0;
    if (--slab->used > 0) {
        addresses_clear(taken->place, slab->place, slab->kind);
        return;
    }
    drop(driver, slab);
    release(driver, taken, behaviour(driver)->page_bytes);
}

void taken_end(struct driver *driver, struct taken *taken)
{
    if (taken->slab == NULL && taken->bytes == 0)
        return;
    count(driver, taken, -1);
    if (taken->slab != NULL)
        give_place(driver, taken);
    else
        release(driver, taken, taken->bytes);
    *taken = (struct taken){0};
}
