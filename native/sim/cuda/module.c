#include "cuda/module.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* 0, or -1 if there is no memory for a copy. */
static int keep_cubin(struct module *module, const void *image)
{
    uint64_t bytes = cubin_bytes(image);
    if (bytes == 0)
        return 0;
    module->cubin = malloc(bytes);
    if (module->cubin == NULL)
        return -1;
    memcpy(module->cubin, image, bytes);
    return 0;
}

CUresult module_load(const void *image, struct module **out)
{
    if (image == NULL || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct module *module = calloc(1, sizeof *module);
    if (module == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (keep_cubin(module, image) != 0) {
        free(module);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    module->kind = MODULE;
    *out = module;
    return CUDA_SUCCESS;
}

CUresult module_unload(struct module *module)
{
    if (module == NULL || module->kind != MODULE)
        return CUDA_ERROR_INVALID_HANDLE;
    module->kind = NO_OBJECT;
    for (struct function *next, *function = module->functions; function != NULL; function = next) {
        next = function->next;
        function->kind = NO_OBJECT;
        free(function);
    }
    free(module->cubin);
    free(module);
    return CUDA_SUCCESS;
}

static struct function *find(const struct module *module, const char *name)
{
    for (struct function *function = module->functions; function; function = function->next)
        if (strcmp(function->name, name) == 0)
            return function;
    return NULL;
}

static struct function *add(struct module *module, const char *name)
{
    size_t size = strlen(name) + 1;
    struct function *function = calloc(1, sizeof *function + size);
    if (function == NULL)
        return NULL;
    function->kind = FUNCTION;
    function->module = module;
    function->next = module->functions;
    function->needs = cubin_function(module->cubin, name);
    function->carveout = -1;
    function->spins = strcmp(name, "spin") == 0;
    memcpy(function->name, name, size);
    module->functions = function;
    return function;
}

CUresult module_function(struct module *module, const char *name, struct function **out)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (name == NULL || out == NULL || *name == '\0')
        return CUDA_ERROR_INVALID_VALUE;
    if (module == NULL || module->kind != MODULE)
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&driver->mutex);
    struct function *function = find(module, name);
    if (function == NULL)
        function = add(module, name);
    pthread_mutex_unlock(&driver->mutex);
    if (function == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = function;
    return CUDA_SUCCESS;
}

API CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    return result == CUDA_SUCCESS ? module_load(image, out) : result;
}
ALSO(cuModuleLoadData, cuModuleLoadFatBinary);

API CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned count, void *options,
                                void *values)
{
    (void)count;
    (void)options;
    (void)values;
    return cuModuleLoadData(out, image);
}

API CUresult cuModuleLoad(CUmodule *out, const char *path)
{
    if (path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (access(path, R_OK) != 0)
        return CUDA_ERROR_FILE_NOT_FOUND;
    return cuModuleLoadData(out, path);
}

API CUresult cuModuleUnload(CUmodule module)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    return result == CUDA_SUCCESS ? module_unload(module) : result;
}

API CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    return module_function(module, name, out);
}

/* No variable of a module is simulated. */
API CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                                  const char *name)
{
    struct driver *driver;
    (void)address;
    (void)bytes;
    (void)module;
    (void)name;
    CUresult result = driver_get(&driver);
    return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_FOUND : result;
}

API CUresult cuModuleGetLoadingMode(int *mode)
{
    enum { EAGER = 1 };
    if (mode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = EAGER;
    return CUDA_SUCCESS;
}
