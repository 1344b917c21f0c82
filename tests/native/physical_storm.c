/* Threads that create, map, retain, bind and let go of physical memory, some of it the same.
 *
 * Each byte that was created must be reported gone exactly once, when nobody keeps it any more.
 * Prints what is wrong and returns 1, or returns 0.
 */
#include "core/memory/physical.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, ROUNDS = 4000, PAGE = 4096, COMMON = 1, TEAM = 2, FIRST = 16 };

static struct physicals physicals;
static _Atomic uint64_t created, given_back;

static void drop(struct physical *reference)
{
    if (reference == NULL)
        return;
    struct physical *gone = physicals_drop(&physicals, reference);
    for (const struct physical *each = gone; each != NULL; each = each->next)
        atomic_fetch_add(&given_back, each->bytes);
    physicals_free(gone);
}

static struct physical *create(uint64_t handle, uint64_t bytes)
{
    struct physical *physical = physicals_new(0, bytes);
    atomic_fetch_add(&created, bytes);
    physicals_name(&physicals, handle, physical);
    return physical;
}

static void release(uint64_t handle)
{
    drop(physicals_unname(&physicals, handle));
}

static void map(uint64_t handle, uint64_t address)
{
    struct physical *held = physicals_hold(&physicals, handle);
    if (held != NULL)
        physicals_place(&physicals, address, PAGE, held);
}

static void unmap(uint64_t address, uint64_t bytes, int refused)
{
    struct physical *reference;
    struct departure departure = physicals_leave(&physicals, address, bytes);
    if (refused) {
        physicals_stay(&physicals, departure);
        return;
    }
    while ((reference = physicals_left(&physicals, departure)) != NULL)
        drop(reference);
}

/* Bind the thread's own memory to the object that all share, and take it off again. */
static void bind(uint64_t handle, uint64_t offset, int taken_off)
{
    struct physical *reference, *object = physicals_hold(&physicals, TEAM);
    physicals_bind(&physicals, object, offset, PAGE, physicals_hold(&physicals, handle));
    struct binding *apart =
        taken_off ? physicals_unbind(&physicals, object, 0, offset, PAGE) : NULL;
    while ((reference = physicals_unbound(&apart)) != NULL)
        drop(reference);
    drop(object);
}

static void retain(uint64_t address, uint64_t handle)
{
    struct physical *held = physicals_hold_at(&physicals, address);
    if (held == NULL)
        return;
    physicals_name(&physicals, handle, held);
    release(handle);
}

static void *work(void *number)
{
    uint64_t own = FIRST + (uintptr_t)number;
    uint64_t base = own * 64 * PAGE;
    unsigned seed = (unsigned)own;
    for (int round = 0; round < ROUNDS; round++) {
        create(own, PAGE + own);
        map(own, base);
        map(COMMON, base + PAGE);
        bind(own, (own * ROUNDS + round) * PAGE, rand_r(&seed) % 16 != 0);
        release(own);
        retain(base, own);
        unmap(base, 2 * PAGE, rand_r(&seed) % 2);
        unmap(base, 2 * PAGE, 0);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    create(COMMON, 3 * PAGE);
    create(TEAM, 0);
    for (uintptr_t number = 0; number < THREADS; number++)
        pthread_create(&threads[number], NULL, work, (void *)number);
    for (int number = 0; number < THREADS; number++)
        pthread_join(threads[number], NULL);
    uint64_t bound = created - given_back;
    release(COMMON);
    release(TEAM);
    physicals_clear(&physicals);
    if (bound > 3 * PAGE && given_back == created)
        return 0;
    fprintf(stderr, "created %llu, given back %llu\n", (unsigned long long)created,
            (unsigned long long)given_back);
    return 1;
}
