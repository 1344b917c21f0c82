#include "manager/mapping.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

enum { MAPPINGS = 8192 };

struct mapping {
    _Atomic(uintptr_t) begin; /* 0: free. Stored last, for the handler. */
    size_t size;
    bool resident;
    atomic_bool lost;
};

static struct mapping mappings[MAPPINGS];
static atomic_uint used;     /* those at or above were never used */
static atomic_bool lost_one; /* ever: asked at every look of every container */
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static bool handled; /* SIGBUS, from the first mapping on */
static struct sigaction before;

static struct mapping *mapping_at(uintptr_t address)
{
    for (unsigned index = 0; index < atomic_load(&used); index++) {
        /* acquire: pairs with the release in mapping_open(), for the size */
        uintptr_t begin = atomic_load_explicit(&mappings[index].begin, memory_order_acquire);
        if (begin != 0 && address >= begin && address - begin < mappings[index].size)
            return &mappings[index];
    }
    return NULL;
}

/* The address is that of a page, and the file's last page counts to its end. */
static size_t in_pages(size_t size)
{
    return (size + 4095) / 4096 * 4096;
}

static bool lose(struct mapping *mapping)
{
    void *place = (void *)atomic_load(&mapping->begin);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    atomic_store(&mapping->lost, true);
    atomic_store(&lost_one, true);
    return mmap(place, mapping->size, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED;
}

/* What is not ours goes to whoever handled it before; by default that ends the process. */
static void on_bus_error(int number, siginfo_t *cause, void *context)
{
    int error = errno;
    struct mapping *mapping =
        cause->si_code > 0 ? mapping_at((uintptr_t)cause->si_addr) : NULL; /* <= 0: kill() */
    if (mapping != NULL && lose(mapping)) {
        errno = error;
        return;
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, cause, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        sigaction(number, &before, NULL);
        if (cause->si_code <= 0)
            raise(number); /* a fault comes again by itself */
    }
    errno = error;
}

static void handle_bus_errors(void)
{
    if (handled)
        return;
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    handled = sigaction(SIGBUS, &action, &before) == 0;
}

static struct mapping *free_place(void)
{
    for (unsigned index = 0; index < MAPPINGS; index++)
        if (atomic_load(&mappings[index].begin) == 0) {
            if (index >= atomic_load(&used))
                atomic_store(&used, index + 1);
            return &mappings[index];
        }
    return NULL;
}

static void *map_at(void *place, const struct mapping *mapping, int descriptor)
{
    int flags = MAP_SHARED | (place != NULL ? MAP_FIXED : 0);
    void *mapped = mmap(place, mapping->size, PROT_READ | PROT_WRITE, flags, descriptor, 0);
    if (mapped == MAP_FAILED)
        return NULL;
    madvise(mapped, mapping->size, MADV_RANDOM); /* or each touched page brings its neighbours */
    if (mapping->resident)
        mlock(mapped, mapping->size);
    return mapped;
}

void *mapping_open(int descriptor, size_t size, bool resident)
{
    pthread_mutex_lock(&changing);
    handle_bus_errors();
    struct mapping *mapping = free_place();
    void *mapped = NULL;
    errno = ENFILE;
    if (mapping != NULL) {
        mapping->size = in_pages(size);
        mapping->resident = resident;
        atomic_store(&mapping->lost, false);
        mapped = map_at(NULL, mapping, descriptor);
        /* release: pairs with the acquire in mapping_at() */
        if (mapped != NULL)
            atomic_store_explicit(&mapping->begin, (uintptr_t)mapped, memory_order_release);
    }
    pthread_mutex_unlock(&changing);
    return mapped;
}

bool mapping_lost(const void *mapping)
{
    if (!atomic_load_explicit(&lost_one, memory_order_relaxed))
        return false;
    const struct mapping *found = mapping_at((uintptr_t)mapping);
    return found == NULL || atomic_load(&found->lost);
}

int mapping_renew(void *mapping, int descriptor)
{
    struct mapping *found = mapping_at((uintptr_t)mapping);
    if (found == NULL)
        return -EINVAL;
    if (map_at(mapping, found, descriptor) == NULL)
        return -errno;
    atomic_store(&found->lost, false);
    return 0;
}

void mapping_close(void *mapping)
{
    pthread_mutex_lock(&changing);
    struct mapping *found = mapping_at((uintptr_t)mapping);
    if (found != NULL) {
        size_t size = found->size;
        atomic_store(&found->begin, 0); /* first: the addresses may be another's at once */
        munmap(mapping, size);
    }
    pthread_mutex_unlock(&changing);
}
