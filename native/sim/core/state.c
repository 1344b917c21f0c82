#include "core/state.h"
#include "core/life.h"
#include "core/process.h"
#include "core/share.h"
#include "core/timeline.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const uint64_t *clock_word;

void sim_use_clock(const uint64_t *word)
{
    clock_word = word;
}

uint64_t sim_now(void)
{
    struct timespec now;
    if (clock_word != NULL)
        return __atomic_load_n(clock_word, __ATOMIC_RELAXED);
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int map(int file, struct sim_state **out)
{
    void *found = mmap(NULL, sizeof(struct sim_state), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_NORESERVE, file, 0);
    if (found == MAP_FAILED)
        return -errno;
    *out = found;
    return 0;
}

static int initialise_mutex(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    int result = pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return -result;
}

static int initialise(struct sim_state *state, const struct sim_machine *machine)
{
    int result = initialise_mutex(&state->mutex);
    if (result != 0)
        return result;
    uint64_t now = sim_now();
    state->machine = *machine;
    for (unsigned gpu = 0; gpu < SIM_GPUS; gpu++)
        state->timelines[gpu] = (struct sim_timeline){.clock_ns = now, .period_start_ns = now};
    state->reaped_ns = now;
    state->pid_namespace = life_namespace("pid");
    state->size = sizeof *state;
    state->version = SIM_VERSION;
    state->magic = SIM_MAGIC;
    return 0;
}

int sim_create(const char *path, const struct sim_machine *machine)
{
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0)
        return -errno;
    struct sim_state *state = NULL;
    int result = fchmod(file, 0666) == 0 && ftruncate(file, sizeof *state) == 0 ? 0 : -errno;
    if (result == 0)
        result = map(file, &state);
    close(file);
    if (result != 0)
        return result;
    result = initialise(state, machine);
    sim_close(state);
    return result;
}

static bool is_ours(const struct sim_state *state)
{
    return state->magic == SIM_MAGIC && state->version == SIM_VERSION &&
           state->size == sizeof *state;
}

int sim_open(const char *path, struct sim_state **out)
{
    struct stat found;
    if (stat(path, &found) != 0) /* looked at before opened: a real device node stays untouched */
        return -errno;
    if (!S_ISREG(found.st_mode) || found.st_size != sizeof(struct sim_state))
        return -EPROTO;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return -errno;
    struct sim_state *state = NULL;
    int result = map(file, &state);
    close(file);
    if (result != 0)
        return result;
    if (!is_ours(state)) {
        sim_close(state);
        return -EPROTO;
    }
    *out = state;
    return 0;
}

void sim_close(struct sim_state *state)
{
    munmap(state, sizeof *state);
}

void sim_reap(struct sim_state *state, uint64_t now)
{
    state->reaped_ns = now;
    for (unsigned slot = 0; slot < state->process_limit; slot++) {
        struct sim_process *process = &state->processes[slot];
        if (process->pid == 0 || process_alive(state, process))
            continue;
        timeline_settle(state, now); /* what it received until now was received */
        share_leave(state, process);
        process_clear(state, process);
    }
}

/* As what a real driver does in the kernel, which no cancellation interrupts. */
static _Thread_local int cancellable;

uint64_t sim_lock(struct sim_state *state)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    bool died = pthread_mutex_lock(&state->mutex) == EOWNERDEAD;
    if (died)
        pthread_mutex_consistent(&state->mutex);
    cancellable = before;
    uint64_t now = sim_now();
    if (died || now - state->reaped_ns > REAP_PERIOD_NS)
        sim_reap(state, now);
    return now;
}

void sim_unlock(struct sim_state *state)
{
    int before = cancellable;
    pthread_mutex_unlock(&state->mutex);
    pthread_setcancelstate(before, NULL);
}
