#include "kernel.h"
#include "spin.h"

void *kernel_load(const struct driver *cuda)
{
    void *module, *function;
    driver_check(cuda->cuModuleLoadData(&module, spin_image), "loading the kernel");
    driver_check(cuda->cuModuleGetFunction(&function, module, "spin"), "finding the kernel");
    return function;
}

static int launch_extended(const struct driver *cuda, const struct phase *phase, void *function,
                           void *stream, void **parameters)
{
    const struct launch_config config = {.grid = {(unsigned)phase->blocks, 1, 1},
                                         .block = {(unsigned)phase->threads, 1, 1},
                                         .stream = stream};
    return cuda->cuLaunchKernelEx(&config, function, parameters, NULL);
}

int kernel_launch(const struct driver *cuda, const struct phase *phase, void *function,
                  uint64_t length, void *stream)
{
    void *parameters[] = {&length};
    unsigned blocks = (unsigned)phase->blocks, threads = (unsigned)phase->threads;
    if (phase->extended)
        return launch_extended(cuda, phase, function, stream, parameters);
    if (phase->cooperative)
        return cuda->cuLaunchCooperativeKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream,
                                               parameters);
    return cuda->cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, NULL);
}
