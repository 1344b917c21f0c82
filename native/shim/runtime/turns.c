#include "runtime/turns.h"

#include "runtime/fork.h"
#include "runtime/hello.h"
#include "runtime/real.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <time.h>

#define TURNS VCUDA_DIRECTORY "/turns"

static const uint64_t second = UINT64_C(1000000000);

/* By the system call, which a preloaded clock does not reach. */
static uint64_t real_now(void)
{
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * second + (uint64_t)now.tv_nsec;
}

/* Its deadline is a time of CLOCK_MONOTONIC. The pages are shared, so the futex is, too. */
static void real_wait(const VCUDA_ATOMIC(uint32_t) * word, uint32_t expected, uint64_t deadline)
{
    struct timespec until = {(time_t)(deadline / second), (long)(deadline % second)};
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void real_wake(VCUDA_ATOMIC(uint32_t) * word)
{
    if (word == NULL) /* the arbiter has its pipe */
        return;
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static const struct vcuda_world real_world = {real_now, real_wait, real_wake};

/* A simulated driver may live by another clock. */
static const struct vcuda_world *find_world(void)
{
    const struct vcuda_world *(*simulated)(void);
    *(void **)&simulated = real_symbol("vcudaSimulatedWorld");
    const struct vcuda_world *world = simulated == NULL ? NULL : simulated();
    return world == NULL ? &real_world : world;
}

static void *map(int descriptor, size_t size, size_t offset, int protection)
{
    struct stat found;
    if (syscall(SYS_fstat, descriptor, &found) != 0 || (size_t)found.st_size < offset + size)
        return NULL;
    void *mapped = mmap(NULL, size, protection, MAP_SHARED, descriptor, (off_t)offset);
    if (mapped == MAP_FAILED)
        return NULL;
    fork_unmap(mapped, size);
    return mapped;
}

static const struct vcuda_turns *map_words(void)
{
    int descriptor = open(TURNS "/words", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return NULL;
    const struct vcuda_turns *words = map(descriptor, sizeof *words, 0, PROT_READ);
    close(descriptor);
    if (words != NULL && (words->magic != VCUDA_TURNS_MAGIC || words->abi != VCUDA_TURNS_ABI)) {
        munmap((void *)(uintptr_t)words, sizeof *words);
        return NULL;
    }
    return words;
}

/* Opened for reading, too: then it opens while no arbiter is there, and never breaks. -1: a program
 * may have no descriptor left, or no way to open one. */
static int open_ring(struct turns *turns)
{
    int ring = open(TURNS "/ring", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (ring >= 0) {
        ring = file_out_of_the_way(ring);
        turns->pipe = file_identity(ring);
        fork_close(FORK_RING, ring);
    }
    atomic_store(&turns->ring, ring);
    return ring;
}

/* A container that began under an agent of before lacks the mount, or its books have no hints:
 * words that no arbiter ever wrote grant nothing, so that its own bucket holds it, and what it
 * tells stays here. */
static void open_alone(struct turns *turns)
{
    static const struct vcuda_turns no_words;
    static struct vcuda_hints no_hints;
    turns->hints = &no_hints.of[0][0];
    turns->words = &no_words;
}

static bool open_told(struct turns *turns, int books, int32_t slot)
{
    const struct vcuda_turns *words = map_words();
    if (words == NULL)
        return false;
    struct vcuda_hints *hints =
        map(books, sizeof *hints, vcuda_hints_offset(), PROT_READ | PROT_WRITE);
    if (hints == NULL) {
        munmap((void *)(uintptr_t)words, sizeof *words);
        return false;
    }
    turns->hints = &hints->of[0][slot];
    open_ring(turns);
    turns->words = words;
    turns->told = true;
    atomic_store_explicit(&turns->hints->progress_ns, turns->world->now(), memory_order_release);
    return true;
}

void turns_open(struct turns *turns, int books, int32_t slot)
{
    turns->world = find_world();
    if (!open_told(turns, books, slot))
        open_alone(turns);
}

void turns_ring(struct turns *turns)
{
    if (!turns->told)
        return;
    int ring = atomic_load(&turns->ring);
    turns->world->wake(NULL);
    if (ring < 0 || !file_same(file_identity(ring), turns->pipe)) /* the program closed it */
        ring = open_ring(turns);
    if (ring >= 0)
        (void)!write(ring, "", 1);
}
