/* The page as a file, and the time in it. */
#include "clock/simclock.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* NULL, and errno says why. */
static struct simclock *map(int file)
{
    void *found = mmap(NULL, sizeof(struct simclock), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return found == MAP_FAILED ? NULL : found;
}

static int begin(struct simclock *clock, uint64_t begin_ns)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    int result = pthread_mutex_init(&clock->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    atomic_store(&clock->now, begin_ns);
    clock->wake_ns = SIMCLOCK_WAKE_NS;
    clock->size = sizeof *clock;
    clock->version = SIMCLOCK_VERSION;
    clock->magic = SIMCLOCK_MAGIC;
    return -result;
}

int simclock_create(const char *path, uint64_t begin_ns)
{
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0)
        return -errno;
    bool sized = fchmod(file, 0666) == 0 && ftruncate(file, sizeof(struct simclock)) == 0;
    struct simclock *clock = sized ? map(file) : NULL;
    int error = errno;
    close(file);
    if (clock == NULL)
        return -error;
    int result = begin(clock, begin_ns);
    simclock_close(clock);
    return result;
}

static bool is_ours(const struct simclock *clock)
{
    return clock->magic == SIMCLOCK_MAGIC && clock->version == SIMCLOCK_VERSION &&
           clock->size == sizeof *clock;
}

int simclock_open(const char *path, struct simclock **out)
{
    struct stat found;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return -errno;
    bool sized = fstat(file, &found) == 0 && found.st_size == sizeof **out;
    struct simclock *clock = sized ? map(file) : NULL;
    close(file);
    if (clock == NULL)
        return -EPROTO;
    if (!is_ours(clock)) {
        simclock_close(clock);
        return -EPROTO;
    }
    *out = clock;
    return 0;
}

void simclock_close(struct simclock *clock)
{
    munmap(clock, sizeof *clock);
}

/* Relaxed: one taker runs at a time, and the futexes order one after the other. */
uint64_t simclock_look(struct simclock *clock)
{
    return atomic_fetch_add_explicit(&clock->now, SIMCLOCK_LOOK_NS, memory_order_relaxed) +
           SIMCLOCK_LOOK_NS;
}

uint64_t simclock_peek(const struct simclock *clock)
{
    return atomic_load_explicit(&clock->now, memory_order_relaxed);
}

const uint64_t *simclock_word(const struct simclock *clock)
{
    return (const uint64_t *)&clock->now;
}
