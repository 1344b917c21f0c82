#include "runtime/fork.h"

#include "core/file_identity.h"
#include "core/heap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* Kept outside of the pages, for the fork handler to find. Written under `making` only. */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static struct {
    void *state;
    size_t size;
} unwiped[FORK_STATES]; /* states that the kernel does not empty */
static struct {
    atomic_int number;         /* + 1; 0: none */
    struct file_identity file; /* written before the number that it belongs to */
} inherited[FORK_DESCRIPTORS];

/* Only what is async-signal-safe: the child may have been forked while any lock was held. */
static void in_child(void)
{
    for (int index = 0; index < FORK_DESCRIPTORS; index++) {
        int descriptor = atomic_exchange(&inherited[index].number, 0) - 1;
        if (descriptor >= 0 && file_same(file_identity(descriptor), inherited[index].file))
            close(descriptor);
    }
    for (int index = 0; index < FORK_STATES; index++)
        if (unwiped[index].state != NULL)
            memset(unwiped[index].state, 0, unwiped[index].size);
    pthread_mutex_init(&making, NULL);
}

static void watch_forks(void)
{
    static int watching; /* inherited by the child with the handler */
    if (!watching)
        watching = pthread_atfork(NULL, NULL, in_child) == 0;
}

static void wipe_by_handler(void *state, size_t size)
{
    for (int index = 0; index < FORK_STATES; index++) {
        if (unwiped[index].state != NULL)
            continue;
        unwiped[index].state = state;
        unwiped[index].size = size;
        return;
    }
}

/* There in a program that is built with a leak sanitizer, or runs with one. */
extern void __lsan_ignore_object(const void *block) __attribute__((weak));

static void *make(size_t size)
{
    atomic_store(&heap_told, __lsan_ignore_object);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *state = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (state == MAP_FAILED)
        return NULL;
    watch_forks();
    madvise(state, size, MADV_NOHUGEPAGE); /* most of it is never touched */
    if (madvise(state, size, MADV_WIPEONFORK) != 0)
        wipe_by_handler(state, size);
    return state;
}

void *fork_state(void *_Atomic *place, size_t size)
{
    /* Pairs with the release below: whoever sees the pages sees them wiped at fork. */
    void *state = atomic_load_explicit(place, memory_order_acquire);
    if (state != NULL)
        return state;
    pthread_mutex_lock(&making);
    state = atomic_load_explicit(place, memory_order_relaxed);
    if (state == NULL) {
        state = make(size);
        atomic_store_explicit(place, state, memory_order_release);
    }
    pthread_mutex_unlock(&making);
    return state;
}

void fork_close(enum fork_descriptor which, int descriptor)
{
    atomic_store(&inherited[which].number, 0);
    if (descriptor < 0)
        return;
    inherited[which].file = file_identity(descriptor);
    atomic_store(&inherited[which].number, descriptor + 1);
}

void fork_unmap(void *mapping, size_t size)
{
    madvise(mapping, size, MADV_DONTFORK);
}
