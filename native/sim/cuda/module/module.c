#include "cuda/module/module.h"
#include "cuda/memory/taken.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CODE_STEP UINT64_C(65536)

static uint64_t bytes_in(const struct driver *driver, const struct context *context,
                         struct image_sizes sizes)
{
    const struct sim_machine *machine = &driver->state->machine;
    bool costs = machine->gpus[driver->gpus[context->device]].context_bytes > 0;
    uint64_t code = (sizes.code + CODE_STEP - 1) / CODE_STEP * CODE_STEP;
    return sizes.variables + (costs ? code : 0);
}

/* driver->mutex is held. */
static CUresult enter(struct driver *driver, struct context *context, struct module *module)
{
    uint64_t bytes = bytes_in(driver, context, module->sizes);
    CUresult result = taken_begin(driver, context, MEMORY_CODE, bytes, &module->taken);
    if (result == CUDA_SUCCESS)
        module->context = context;
    return result;
}

static void leave(struct driver *driver, struct module *module)
{
    if (module->context == NULL)
        return;
    taken_end(driver, &module->taken);
    module->context = NULL;
}

CUresult module_enter(struct driver *driver, struct module *module)
{
    CUresult result = CUDA_SUCCESS;
    struct context *context = context_current(driver);
    pthread_mutex_lock(&driver->mutex);
    if (module->context == NULL && context != NULL)
        result = enter(driver, context, module);
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

void module_leave_all(struct driver *driver, const struct context *context)
{
    for (struct module *module = driver->modules; module != NULL; module = module->next)
        if (module->context == context)
            leave(driver, module);
}

static void link_in(struct driver *driver, struct module *module)
{
    pthread_mutex_lock(&driver->mutex);
    module->next = driver->modules;
    driver->modules = module;
    pthread_mutex_unlock(&driver->mutex);
}

static void link_out(struct driver *driver, const struct module *module)
{
    struct module **place = &driver->modules;
    while (*place != NULL && *place != module)
        place = &(*place)->next;
    if (*place != NULL)
        *place = module->next;
}

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

/* What real drivers do by default since 12.2 happens here if the program asks for it. */
static bool lazy(void)
{
    const char *mode = getenv("CUDA_MODULE_LOADING");
    return mode != NULL && strcmp(mode, "LAZY") == 0;
}

CUresult module_load(struct driver *driver, struct context *context, const void *image,
                     struct module **out)
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
    module->sizes = image_sizes(image);
    CUresult result = context == NULL || lazy() ? CUDA_SUCCESS : module_enter(driver, module);
    if (result != CUDA_SUCCESS) {
        free(module->cubin);
        free(module);
        return result;
    }
    link_in(driver, module);
    *out = module;
    return CUDA_SUCCESS;
}

CUresult module_unload(struct driver *driver, struct module *module)
{
    if (module == NULL || module->kind != MODULE)
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&driver->mutex);
    leave(driver, module);
    link_out(driver, module);
    pthread_mutex_unlock(&driver->mutex);
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
    function->collective = strncmp(name, "ncclDevKernel", strlen("ncclDevKernel")) == 0;
    function->spins =
        function->collective || strcmp(name, "spin") == 0 || strcmp(name, "work") == 0;
    function->jumps = strcmp(name, "jumps") == 0;
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
    return result == CUDA_SUCCESS ? module_load(driver, context, image, out) : result;
}

API CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image)
{
    return cuModuleLoadData(out, image);
}

API CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned count, void *options,
                                void *values)
{
    (void)count;
    (void)options;
    (void)values;
    return cuModuleLoadData(out, image);
}

CUresult module_read(const char *path, void **image, size_t *bytes)
{
    FILE *file = path == NULL ? NULL : fopen(path, "rbe");
    if (file == NULL)
        return path == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_FILE_NOT_FOUND;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = calloc(1, (size_t)(size < 0 ? 0 : size) + 1);
    bool whole = size >= 0 && text != NULL && fread(text, 1, (size_t)size, file) == (size_t)size;
    fclose(file);
    if (!whole) {
        free(text);
        return CUDA_ERROR_FILE_NOT_FOUND;
    }
    *image = text;
    *bytes = (size_t)size;
    return CUDA_SUCCESS;
}

API CUresult cuModuleLoad(CUmodule *out, const char *path)
{
    void *image;
    size_t bytes;
    CUresult result = module_read(path, &image, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuModuleLoadData(out, image);
    free(image);
    return result;
}

API CUresult cuModuleUnload(CUmodule module)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    return result == CUDA_SUCCESS ? module_unload(driver, module) : result;
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
    enum { EAGER = 1, LAZY = 2 };
    if (mode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = lazy() ? LAZY : EAGER;
    return CUDA_SUCCESS;
}
