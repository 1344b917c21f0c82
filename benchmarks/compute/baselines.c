/* The usual way to limit a GPU's compute, to compare with: tokens, and a loop over NVML.
 *
 * A launch costs as many tokens as it has blocks, and is let go whenever the bucket is not below
 * zero. A thread refills the bucket at a fixed beat, by an amount that it steers: the utilisation
 * that NVML shows for this process, up to a second old and in whole percents, is held against the
 * limit. Two laws are in use for the steering, one of which is chosen at build time:
 *
 *   LAW_DELTA  every 120 ms the amount grows or shrinks by a step proportional to the distance from
 *              the limit, and larger yet if that is more than half of the limit;
 *   LAW_AIMD   every 100 ms it grows by a constant while utilisation is below 80 % of the limit,
 *              stays up to 87.5 % of it, and above is divided by three, then left for three beats.
 *
 * The constants are those published for the programs that limit so. Kernels launched one by one are
 * limited; graphs are not, as there. Put in front by LD_PRELOAD, the limit in BASELINE_PERCENT. One
 * bucket for each process, on its first GPU.
 */
#include "nvml_types.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SAMPLES = 256, WAIT_MS = 10, POOL_FACTOR = 32 };
enum { MULTIPROCESSORS = 16, THREADS_PER_MULTIPROCESSOR = 39 }; /* attributes of a device */
enum { PER_THREAD_STREAM = 2 };                                 /* a flag of cuGetProcAddress */

typedef int launch_function(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                            void *stream, void **parameters, void **extra);
typedef int lookup_function(const char *name, void **entry, int version, uint64_t flags,
                            int *status);
typedef void *symbol_function(void *library, const char *name);

/* limit, utilisation: percent. share: tokens of the next beat. pool: no more are saved. */
struct law {
    long limit;
    long multiprocessors;
    long threads;
    long pool;
    long share;
    int resting;
};

#ifdef LAW_AIMD

enum { BEAT_MS = 100, REST = 3, DIVISOR = 3, EFFECTIVE_PERMILLE = 875, ENOUGH_PERMILLE = 800 };
enum { KEEPS_LAST = 0 };

static void steer(struct law *law, long used)
{
    long effective = law->limit * EFFECTIVE_PERMILLE, enough = law->limit * ENOUGH_PERMILLE;
    if (law->resting > 0)
        law->resting--;
    if (used * 1000 < enough) {
        law->share += law->multiprocessors * law->threads * 3 * effective / 1000 / 400;
    } else if (used * 1000 > effective && law->resting == 0) {
        law->share /= DIVISOR;
        law->resting = REST;
    }
}

#else

enum { BEAT_MS = 120, LEAST_DISTANCE = 5, STEP_DIVISOR = 2560 };
enum { KEEPS_LAST = 1 };

static void steer(struct law *law, long used)
{
    long distance = labs(law->limit - used);
    if (distance < LEAST_DISTANCE)
        distance = LEAST_DISTANCE;
    long step = law->multiprocessors * law->multiprocessors * law->threads * distance;
    step /= STEP_DIVISOR;
    if (distance > law->limit / 2)
        step = step * 2 * distance / (law->limit + 1);
    law->share += used <= law->limit ? step : -step;
}

#endif

static atomic_long tokens;
static struct law law;
static pthread_once_t begun = PTHREAD_ONCE_INIT;
static launch_function *launch, *launch_per_thread;
static lookup_function *lookup;
static int (*attribute)(int *out, int which, int device);

static symbol_function *real_dlsym(void)
{
    static symbol_function *found;
    const char *versions[] = {"GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.34"};
    for (int i = 0; i < 3 && found == NULL; i++)
        found = (symbol_function *)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    return found;
}

static void rest(long milliseconds)
{
    struct timespec time = {.tv_sec = milliseconds / 1000,
                            .tv_nsec = milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static struct {
    int (*start)(void);
    int (*device)(unsigned index, nvmlDevice_t *out);
    int (*usage)(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned *count,
                 unsigned long long since);
    nvmlDevice_t gpu;
} nvml;

static int nvml_open(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (library == NULL)
        return -1;
    symbol_function *find = real_dlsym();
    *(void **)&nvml.start = find(library, "nvmlInit_v2");
    *(void **)&nvml.device = find(library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&nvml.usage = find(library, "nvmlDeviceGetProcessUtilization");
    return nvml.start() != NVML_SUCCESS || nvml.device(0, &nvml.gpu) != NVML_SUCCESS ? -1 : 0;
}

/* Percent that NVML shows for this process in the last second; 0 if it lists no sample of that.
 * When NVML answers with an error one law holds the last figure against the limit
 * (vcuda-controller). */
static long used_percent(void)
{
    nvmlProcessUtilizationSample_t samples[SAMPLES];
    unsigned count = SAMPLES;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long since = (unsigned long long)(now.tv_sec - 1) * 1000000 + now.tv_nsec / 1000;
    static long percent;
    if (nvml.usage(nvml.gpu, samples, &count, since) != NVML_SUCCESS)
        return KEEPS_LAST ? percent : 0;
    unsigned long long newest = since;
    percent = 0;
    for (unsigned i = 0; i < count; i++)
        if (samples[i].pid == (unsigned)getpid() && samples[i].timeStamp >= newest) {
            newest = samples[i].timeStamp;
            percent = samples[i].smUtil;
        }
    return percent;
}

static long clamp(long value, long most)
{
    return value < 0 ? 0 : value > most ? most : value;
}

static void refill(long amount, long most)
{
    long have = atomic_load(&tokens);
    while (
        !atomic_compare_exchange_weak(&tokens, &have, have + amount > most ? most : have + amount))
        ;
}

static void *watch(void *unused)
{
    (void)unused;
    for (;;) {
        rest(BEAT_MS);
        steer(&law, used_percent());
        law.share = clamp(law.share, law.pool);
        refill(law.share, law.pool);
    }
    return NULL;
}

static void begin(void)
{
    const char *percent = getenv("BASELINE_PERCENT");
    int multiprocessors = 0, threads = 0;
    pthread_t watcher;
    law.limit = percent != NULL ? atol(percent) : 100;
    if (law.limit >= 100 || nvml_open() != 0 || attribute == NULL)
        return;
    attribute(&multiprocessors, MULTIPROCESSORS, 0);
    attribute(&threads, THREADS_PER_MULTIPROCESSOR, 0);
    law.multiprocessors = multiprocessors;
    law.threads = threads;
    law.pool = law.multiprocessors * law.threads * POOL_FACTOR;
    if (pthread_create(&watcher, NULL, watch, NULL) == 0)
        pthread_detach(watcher);
}

/* Tokens stay at zero, and nothing is held back, where there is no limit. */
static void pay(uint64_t blocks)
{
    pthread_once(&begun, begin);
    if (law.pool == 0)
        return;
    long have = atomic_load(&tokens);
    for (;;) {
        if (have < 0) {
            rest(WAIT_MS);
            have = atomic_load(&tokens);
        } else if (atomic_compare_exchange_weak(&tokens, &have, have - (long)blocks)) {
            return;
        }
    }
}

static int limited_launch(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                          void *stream, void **parameters, void **extra)
{
    pay((uint64_t)grid_x * grid_y * grid_z);
    return launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
                  parameters, extra);
}

static int limited_launch_per_thread(void *function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned shared, void *stream,
                                     void **parameters, void **extra)
{
    pay((uint64_t)grid_x * grid_y * grid_z);
    return launch_per_thread(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
                             stream, parameters, extra);
}

static int limited_lookup(const char *name, void **entry, int version, uint64_t flags, int *status)
{
    int result = lookup(name, entry, version, flags, status);
    if (result != 0 || entry == NULL || *entry == NULL || strcmp(name, "cuLaunchKernel") != 0)
        return result;
    if ((flags & PER_THREAD_STREAM) != 0) {
        *(void **)&launch_per_thread = *entry;
        *(launch_function **)entry = limited_launch_per_thread;
    } else {
        *(void **)&launch = *entry;
        *(launch_function **)entry = limited_launch;
    }
    return result;
}

static void *interposed(void *library, const char *name)
{
    void *found = real_dlsym()(library, name);
    if (found == NULL)
        return NULL;
    if (strcmp(name, "cuLaunchKernel") == 0) {
        *(void **)&launch = found;
        return *(void **)&(launch_function *){limited_launch};
    }
    *(void **)&lookup = found;
    *(void **)&attribute = real_dlsym()(library, "cuDeviceGetAttribute");
    return *(void **)&(lookup_function *){limited_lookup};
}

/* Programs that open the driver look here for what they launch with. What others look for, the
 * loader must think that they ask it themselves (RTLD_NEXT is theirs): a call in tail position,
 * which the compiler makes a jump. */
__attribute__((visibility("default"))) void *dlsym(void *library, const char *name)
{
    if (strcmp(name, "cuLaunchKernel") == 0 || strcmp(name, "cuGetProcAddress_v2") == 0)
        return interposed(library, name);
    return real_dlsym()(library, name);
}
