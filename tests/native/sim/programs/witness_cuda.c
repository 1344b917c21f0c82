/* A libcuda.so.1 that writes down what gives the GPU work, and lets the driver of $WITNESS_DRIVER
 * do it: for test_workloads.py.
 *
 * One line for each call goes to the file of $WITNESS_LOG: the function, `ptsz` when it was asked
 * for with the thread's own default stream, the stream, and the blocks and threads of a kernel.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int lookup_function(const char *, void **, int, uint64_t, int *);

struct config {
    unsigned grid[3], block[3], shared;
    void *stream;
};

static void say(const char *name, int per_thread, void *stream, unsigned blocks, unsigned threads)
{
    FILE *log = fopen(getenv("WITNESS_LOG"), "ae");
    if (log == NULL)
        abort();
    fprintf(log, "%s%s %p %u %u\n", name, per_thread ? " ptsz" : "", stream, blocks, threads);
    fclose(log);
}

#define SHAPE                                                                                      \
    unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
#define AS_SHAPED gx, gy, gz, bx, by, bz, shared

/* Every function that is watched: parameters, how they are passed on, its stream, its shape. */
#define WATCHED(WATCH)                                                                             \
    WATCH(cuLaunchKernel, (void *f, SHAPE, void *s, void **p, void **e), (f, AS_SHAPED, s, p, e),  \
          s, gx * gy * gz, bx * by * bz)                                                           \
    WATCH(cuLaunchCooperativeKernel, (void *f, SHAPE, void *s, void **p), (f, AS_SHAPED, s, p), s, \
          gx * gy * gz, bx * by * bz)                                                              \
    WATCH(cuLaunchKernelEx, (const struct config *c, void *f, void **p, void **e), (c, f, p, e),   \
          c->stream, c->grid[0], c->block[0])                                                      \
    WATCH(cuGraphLaunch, (void *g, void *s), (g, s), s, 0, 0)                                      \
    WATCH(cuMemsetD8Async, (uint64_t to, unsigned char v, size_t n, void *s), (to, v, n, s), s, 0, \
          0)                                                                                       \
    WATCH(cuMemcpyHtoDAsync, (uint64_t to, void *from, size_t n, void *s), (to, from, n, s), s, 0, \
          0)                                                                                       \
    WATCH(cuMemcpyDtoHAsync, (void *to, uint64_t from, size_t n, void *s), (to, from, n, s), s, 0, \
          0)                                                                                       \
    WATCH(cuMemcpyDtoDAsync, (uint64_t to, uint64_t from, size_t n, void *s), (to, from, n, s), s, \
          0, 0)

#define DEFINE_ONE(name, per_thread, parameters, arguments, stream, blocks, threads)               \
    static int(*name##_real_##per_thread) parameters;                                              \
    static int name##_##per_thread parameters                                                      \
    {                                                                                              \
        say(#name, per_thread, stream, blocks, threads);                                           \
        return name##_real_##per_thread arguments;                                                 \
    }
#define DEFINE(name, parameters, arguments, stream, blocks, threads)                               \
    DEFINE_ONE(name, 0, parameters, arguments, stream, blocks, threads)                            \
    DEFINE_ONE(name, 1, parameters, arguments, stream, blocks, threads)
WATCHED(DEFINE)

struct watched {
    const char *name;
    void **real[2];
    void *witness[2];
};

static const struct watched all[] = {
#define ROW(name, ...)                                                                             \
    {#name,                                                                                        \
     {(void **)&name##_real_0, (void **)&name##_real_1},                                           \
     {(void *)name##_0, (void *)name##_1}},
    WATCHED(ROW)
#undef ROW
};

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    void *driver = dlopen(getenv("WITNESS_DRIVER"), RTLD_NOW);
    if (driver == NULL)
        abort();
    lookup_function *lookup = (lookup_function *)dlsym(driver, "cuGetProcAddress_v2");
    int result = lookup(name, function, version, flags, status);
    for (size_t i = 0; result == 0 && i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].name, name) == 0) {
            *all[i].real[flags == 2] = *function;
            *function = all[i].witness[flags == 2];
        }
    return result;
}
