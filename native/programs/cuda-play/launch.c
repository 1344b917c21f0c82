/* `launch`: kernels of a known length, one after another, for some time.
 *
 * The kernel spins on the GPU's clock for as many nanoseconds as its parameter says. Launches run
 * ahead of the GPU by two batches at most, or with --sync-each not at all.
 */
#include "driver.h"
#include "memory.h"
#include "spin.h"
#include "verbs.h"
#include <stdio.h>
#include <time.h>

#define BATCH_NS UINT64_C(20000000)

/* events: the ends of the last two batches. */
struct pace {
    void *function;
    uint64_t kernel;
    uint64_t batch;
    void *events[2];
    uint64_t done;
};

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void load_kernel(struct pace *pace)
{
    void *module;
    driver_check(cuModuleLoadData(&module, spin_image), "loading the kernel");
    driver_check(cuModuleGetFunction(&pace->function, module, "spin"), "finding the kernel");
    for (int i = 0; i < 2; i++)
        driver_check(cuEventCreate(&pace->events[i], 0), "making an event");
    pace->batch = pace->kernel < BATCH_NS ? BATCH_NS / pace->kernel : 1;
}

static void launch_one(struct pace *pace)
{
    void *parameters[] = {&pace->kernel};
    int code = cuLaunchKernel(pace->function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    driver_check(code, "launching");
    pace->done++;
}

/* At the end of each batch: wait for the end of the one before. */
static void keep_pace(const struct pace *pace)
{
    uint64_t batch = pace->done / pace->batch;
    if (pace->done % pace->batch != 0)
        return;
    driver_check(cuEventRecord(pace->events[batch % 2], NULL), "recording an event");
    if (batch > 1)
        driver_check(cuEventSynchronize(pace->events[(batch + 1) % 2]), "waiting for an event");
}

/* Returns the nanoseconds from the first launch to the end of the last kernel. */
static uint64_t run(struct pace *pace, const struct options *options)
{
    uint64_t start = now();
    while (now() - start < options->seconds) {
        launch_one(pace);
        if (options->sync_each)
            driver_check(cuCtxSynchronize(), "waiting for the kernel");
        else
            keep_pace(pace);
    }
    driver_check(cuCtxSynchronize(), "waiting for the kernels");
    return now() - start;
}

static void take_memory(uint64_t bytes)
{
    char text[SIZE_TEXT];
    device_address address;
    if (bytes == 0)
        return;
    driver_check(cuMemAlloc(&address, bytes), "allocating");
    printf("holding %s\n", memory_text(bytes, text));
}

int launch(const struct options *options)
{
    struct pace pace = {.kernel = options->kernel};
    if (options->kernel == 0 || options->seconds == 0) {
        fprintf(stderr, "cuda-play: launch: --kernel and --seconds are needed\n");
        return 2;
    }
    driver_load();
    driver_use((int)options->device);
    take_memory(options->memory);
    load_kernel(&pace);
    double spent = (double)run(&pace, options) / 1e9;
    double worked = (double)pace.done * (double)pace.kernel / 1e9;
    printf("%llu kernels of %g ms: %.2f s of GPU time in %.2f s, a share of %.1f %%\n",
           (unsigned long long)pace.done, (double)pace.kernel / 1e6, worked, spent,
           100 * worked / spent);
    return 0;
}
