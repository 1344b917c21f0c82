/* A program of the CUDA runtime: its own calls go through the hooks, or they do not.
 *
 *     runtime CUDART MIB    a line of JSON
 *
 * It launches kernels for half a second, and then takes memory until it is refused, or holds MIB;
 * with MIB 0 it launches none and takes 1 MiB.
 *
 * CUDART is a libcudart to load, or `-` where the runtime is linked into this program
 * (-DSTATIC_RUNTIME). No header of CUDA, so that any compiler makes it. cudaErrorMemoryAllocation
 * is 2; cudaErrorSoftwareValidityNotEstablished, 103, says that the runtime does not believe its
 * driver.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    ABSENT = -1,
    OUT_OF_MEMORY = 2,
    MAJOR = 75, /* cudaDevAttrComputeCapabilityMajor, Minor */
    MINOR = 76,
    NEWEST = 80, /* what PTX 7.0 can name; a driver compiles it for every later GPU */
    MOST = 4096,
    HELD_US = 500000,
    ROUNDS = 10000000,
};

struct dim3 {
    unsigned x, y, z;
};

#ifdef STATIC_RUNTIME
int cudaGetDeviceCount(), cudaDeviceGetAttribute(), cudaFree(), cudaMalloc(),
    cudaDeviceSynchronize(), cudaRuntimeGetVersion(), cudaLibraryLoadData(), cudaLibraryGetKernel(),
    cudaLaunchKernel();
#define FIND(name) name
#else
static void *library;
#define FIND(name) ((int (*)())dlsym(library, #name))
#endif

/* A function of the runtime: its answer, ABSENT if there is none of that name. */
#define RT(name, ...)                                                                              \
    ({                                                                                             \
        int (*function_)() = FIND(name);                                                           \
        function_ != NULL ? function_(__VA_ARGS__) : ABSENT;                                       \
    })

/* So many rounds of work; the simulated driver knows the name, and takes a round for a
 * nanosecond. */
static const char PTX[] = ".version 7.0\n.target sm_%d\n.address_size 64\n"
                          ".visible .entry spin(.param .u64 rounds)\n{\n"
                          " .reg .u64 %%rd<3>;\n .reg .f32 %%f<2>;\n .reg .pred %%p<3>;\n"
                          " ld.param.u64 %%rd1, [rounds];\n mov.u64 %%rd2, 0;\n"
                          " mov.f32 %%f1, 0f3F800001;\n"
                          "again:\n fma.rn.f32 %%f1, %%f1, %%f1, %%f1;\n add.u64 %%rd2, %%rd2, 1;\n"
                          " setp.lt.u64 %%p1, %%rd2, %%rd1;\n @%%p1 bra again;\n"
                          " setp.eq.f32 %%p2, %%f1, 0f00000000;\n @%%p2 trap;\n ret;\n}\n";

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* 1 where the shim is mapped. */
static int shim_loaded(void)
{
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        found |= strstr(line, "libvcuda-shim-") != NULL && strstr(line, "-shim-ml-") == NULL;
    if (maps != NULL)
        fclose(maps);
    return found;
}

static int launch(void *kernel, uint64_t rounds, int count)
{
    static const struct dim3 one = {1, 1, 1};
    void *parameters[] = {&rounds};
    int result = 0;
    for (int i = 0; i < count && result == 0; i++)
        result = RT(cudaLaunchKernel, kernel, one, one, parameters, (size_t)0, NULL);
    return result != 0 ? result : RT(cudaDeviceSynchronize);
}

/* Keeps the GPU busy for some half a second; how long it was busy in all, as the host sees it. A
 * first launch, so long that waits do not matter, tells how many there are to be. */
static int launch_for_a_while(double *seconds)
{
    static char text[sizeof PTX + 16];
    void *module = NULL, *kernel = NULL;
    int major = 7, minor = 0;
    RT(cudaDeviceGetAttribute, &major, MAJOR, 0);
    RT(cudaDeviceGetAttribute, &minor, MINOR, 0);
    int capability = major * 10 + minor;
    snprintf(text, sizeof text, PTX, capability < NEWEST ? capability : NEWEST);
    int result = RT(cudaLibraryLoadData, &module, text, NULL, NULL, 0, NULL, NULL, 0);
    if (result == 0)
        result = RT(cudaLibraryGetKernel, &kernel, module, "spin");
    if (result != 0)
        return result;
    double begun = now_s();
    result = launch(kernel, ROUNDS, 1);
    double one = now_s() - begun;
    if (result == 0)
        result = launch(kernel, ROUNDS, one > 0.5 ? 1 : (int)(0.5 / one) + 1);
    *seconds = now_s() - begun;
    return result;
}

/* Bytes held in the end; what the last piece was refused with, 0 if all was had. */
static int fill(size_t most, size_t *held)
{
    static void *pieces[MOST];
    int count = 0, result = 0;
    for (size_t piece = 64 << 20; piece >= 1 << 20; piece /= 64)
        for (result = 0; result == 0 && *held + piece <= most && count < MOST;) {
            result = RT(cudaMalloc, &pieces[count], piece);
            if (result == 0)
                count++, *held += piece;
        }
    usleep(HELD_US); /* the manager and NVML are sampled meanwhile */
    for (int i = 0; i < count; i++)
        RT(cudaFree, pieces[i]);
    return result;
}

int main(int count, char **words)
{
    if (count != 3)
        return fputs("usage: runtime CUDART|- MIB\n", stderr), 2;
    size_t most = (size_t)atol(words[2]) << 20, held = 0;
    int gpus = 0, version = 0, launched = 0;
    double seconds = 0;
#ifndef STATIC_RUNTIME
    library = dlopen(words[1], RTLD_NOW);
    if (library == NULL)
        return fprintf(stderr, "runtime: %s\n", dlerror()), 1;
#endif
    RT(cudaRuntimeGetVersion, &version);
    int found = RT(cudaGetDeviceCount, &gpus), freed = RT(cudaFree, NULL);
    if (freed == 0 && most > 0)
        launched = launch_for_a_while(&seconds);
    int refused = fill(most > 0 ? most : 1 << 20, &held);
    printf("{\"shim\":%s,\"gpus\":%d,\"version\":%d,\"busy_s\":%.4f,\"held\":%zu,\"refused\":%d,"
           "\"results\":{\"cudaGetDeviceCount\":%d,\"cudaFree\":%d,\"cudaLaunchKernel\":%d,"
           "\"cudaMalloc\":%d}}\n",
           shim_loaded() ? "true" : "false", gpus, version, seconds, held, refused, found, freed,
           launched, refused == OUT_OF_MEMORY ? 0 : refused);
    return 0;
}
