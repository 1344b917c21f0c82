/* What the shim adds to a launch: the driver's cuLaunchKernel and the shim's, in turns.
 *
 *     launches ROUNDS CALLS BYTES    a line for each round: SIDE MEAN SLOWEST, ns of a call
 *
 * Both lie in this process: `libcuda.so.1` is the shim, beside which the loader has put the driver
 * under its other name. One context, one stream, one kernel that does nothing; after each round
 * there is a pause, so that nothing is throttled and no queue fills up. Between two calls so many
 * BYTES of memory are walked: of 1 MiB none of the hook's code and data stay in the nearest caches.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAJOR = 75, MINOR = 76, NEWEST = 80, PAUSE_NS = 2000000 };

static const char PTX[] = ".version 7.0\n.target sm_%d\n.address_size 64\n"
                          ".visible .entry empty()\n{\n    ret;\n}\n";

typedef int (*launch_function)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z,
                               unsigned shared, void *stream, void **parameters, void **extra);

struct side {
    const char *name;
    launch_function launch;
};

static void check(int result, const char *what)
{
    if (result == 0)
        return;
    fprintf(stderr, "launches: %s answers %d\n", what, result);
    exit(1);
}

static void *find(void *library, const char *name)
{
    void *found = library == NULL ? NULL : dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "launches: no %s\n", name);
        exit(1);
    }
    return found;
}

#define CALL(library, name, ...) check(((int (*)())find(library, name))(__VA_ARGS__), name)

/* The kernel, in the primary context of device 0, compiled for it. */
static void *empty_kernel(void *library)
{
    int device = 0, major = 0, minor = 0;
    void *context = NULL, *module = NULL, *function = NULL;
    char image[sizeof PTX + 16];
    CALL(library, "cuInit", 0);
    CALL(library, "cuDeviceGet", &device, 0);
    CALL(library, "cuDevicePrimaryCtxRetain", &context, device);
    CALL(library, "cuCtxSetCurrent", context);
    CALL(library, "cuDeviceGetAttribute", &major, MAJOR, device);
    CALL(library, "cuDeviceGetAttribute", &minor, MINOR, device);
    int capability = major * 10 + minor;
    snprintf(image, sizeof image, PTX, capability < NEWEST ? capability : NEWEST);
    CALL(library, "cuModuleLoadData", &module, image);
    CALL(library, "cuModuleGetFunction", &function, module, "empty");
    return function;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static volatile unsigned char walked[1 << 24];

static void walk(size_t bytes)
{
    for (size_t at = 0; at < bytes && at < sizeof walked; at += 64)
        walked[at]++;
}

/* Prints ns per call, the mean and the slowest, without the wait for what was launched. */
static void round_of(const struct side *side, void *function, int calls, size_t bytes, int warm)
{
    double sum = 0, slowest = 0;
    for (int i = 0; i < calls; i++) {
        walk(bytes);
        double begun = now();
        check(side->launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
        double took = now() - begun;
        sum += took;
        slowest = took > slowest ? took : slowest;
    }
    if (!warm)
        printf("%s %.1f %.1f\n", side->name, sum / calls, slowest);
}

static void settle(void *library)
{
    CALL(library, "cuCtxSynchronize");
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

int main(int count, char **words)
{
    int rounds = count == 4 ? atoi(words[1]) : 0, calls = count == 4 ? atoi(words[2]) : 0;
    if (rounds < 1 || calls < 1)
        return fputs("usage: launches ROUNDS CALLS BYTES\n", stderr), 2;
    size_t bytes = (size_t)atol(words[3]);
    void *shim = dlopen("libcuda.so.1", RTLD_NOW), *driver = dlopen("libvcuda-real.so.1", RTLD_NOW);
    void *function = empty_kernel(shim);
    struct side sides[] = {
        {"driver", (launch_function)find(driver, "cuLaunchKernel")},
        {"shim", (launch_function)find(shim, "cuLaunchKernel")},
    };
    if (sides[0].launch == sides[1].launch)
        return fputs("launches: the shim is not loaded\n", stderr), 1;
    for (int turn = -2; turn < 2 * rounds; turn++) {
        const struct side *side = &sides[(turn + 2) / 2 % 2 ^ (turn & 1)];
        round_of(side, function, calls, bytes, turn < 0); /* the first two warm up */
        settle(shim);
    }
    return 0;
}
