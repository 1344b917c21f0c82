/* Modules and libraries: their code and their variables take device memory where they are loaded.
 */
#include "core/memory/image.h"
#include "cuda/memory/overhead.h"
#include "cuda/time/collective.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Programs load small modules by the hundred: those are not measured one by one. */
enum { SMALL = 1 << 20 };

/* What an image takes. least: when it is loaded; a driver that loads lazily takes the code only
 * when it is launched. extent: at most; 0 if that is not known. */
struct needs {
    uint64_t bytes;
    uint64_t least;
    uint64_t extent;
};

static CUresult begin(struct overhead *overhead, struct needs needs)
{
    CUresult result = overhead_begin_loading(overhead, needs.bytes, needs.least);
    overhead->often = needs.extent < SMALL;
    return result;
}

/* Is it known here that the driver takes memory by itself? Else code is not guessed at. */
static bool code_counts(void)
{
    int device;
    struct process *process = process_limited();
    return process != NULL && process_current(process, &device) == CUDA_SUCCESS &&
           overhead_of_context(process, device) > 0;
}

/* Drivers of before 11.7 do not, and do not say so. */
static bool loads_lazily(void)
{
    int mode;
    return REAL(cuModuleGetLoadingMode)(&mode) == CUDA_SUCCESS && mode == CU_MODULE_LAZY_LOADING;
}

static struct needs needs_of(const void *image, uint64_t extent)
{
    bool counts = code_counts();
    uint64_t bytes = slab_whole(counts ? image_estimate(image) : image_bytes(image));
    uint64_t variables = slab_whole(image_variables(image));
    return (struct needs){
        .bytes = bytes, .least = counts && !loads_lazily() ? bytes : variables, .extent = extent};
}

static CUresult begin_image(struct overhead *overhead, const void *image)
{
    return begin(overhead, needs_of(image, image_extent(image)));
}

/* Of a file, mapped: the rest of its last page, which is zero, ends what is text. */
static struct needs mapped_needs(int file)
{
    struct needs needs = {0};
    off_t size = lseek(file, 0, SEEK_END);
    void *mapping =
        size <= 0 ? MAP_FAILED : mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapping == MAP_FAILED)
        return needs;
    if (size % sysconf(_SC_PAGESIZE) != 0) /* else nothing would end it */
        needs = needs_of(mapping, (uint64_t)size);
    needs.extent = (uint64_t)size;
    munmap(mapping, (size_t)size);
    return needs;
}

static CUresult begin_file(struct overhead *overhead, const char *path)
{
    struct needs needs = {0};
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        needs = mapped_needs(file);
        close(file);
    }
    return begin(overhead, needs);
}

static void remember(const struct overhead *overhead, const void *handle)
{
    CUcontext context = NULL;
    if (overhead->process == NULL)
        return;
    REAL(cuCtxGetCurrent)(&context);
    struct pointer loaded = {
        .address = (uintptr_t)handle, .context = (uintptr_t)context, .device = overhead->device};
    pointers_add(&overhead->process->holdings[HOLDING_MODULE], loaded);
}

static void forget(struct overhead *overhead, const void *handle)
{
    struct pointer loaded;
    pointers_take(&overhead->process->holdings[HOLDING_MODULE], (uintptr_t)handle, &loaded);
    overhead_undone(overhead);
}

static CUresult end_module(struct overhead *overhead, CUresult answer, CUmodule *module,
                           CUmodule before)
{
    if (answer == CUDA_SUCCESS)
        remember(overhead, *module);
    CUresult result = overhead_end(overhead, answer);
    if (answer == CUDA_SUCCESS && result != CUDA_SUCCESS) {
        process_enter(overhead->process);
        OWN_CALL(REAL(cuModuleUnload)(*module));
        process_leave();
        forget(overhead, *module);
        *module = before;
    }
    return result;
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    struct overhead overhead;
    CUmodule before = module == NULL ? NULL : *module;
    CUresult result = begin_file(&overhead, path);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuModuleLoad)(module, path);
    return end_module(&overhead, result, module, before);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    struct overhead overhead;
    CUmodule before = module == NULL ? NULL : *module;
    CUresult result = begin_image(&overhead, image);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuModuleLoadData)(module, image);
    return end_module(&overhead, result, module, before);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, int *options,
                            void **values)
{
    struct overhead overhead;
    CUmodule before = module == NULL ? NULL : *module;
    CUresult result = begin_image(&overhead, image);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuModuleLoadDataEx)(module, image, count, options, values);
    return end_module(&overhead, result, module, before);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    struct overhead overhead;
    CUmodule before = module == NULL ? NULL : *module;
    CUresult result = begin_image(&overhead, image);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuModuleLoadFatBinary)(module, image);
    return end_module(&overhead, result, module, before);
}

static CUresult end_library(struct overhead *overhead, CUresult answer, CUlibrary *library,
                            CUlibrary before)
{
    if (answer == CUDA_SUCCESS)
        remember(overhead, *library);
    CUresult result = overhead_end(overhead, answer);
    if (answer == CUDA_SUCCESS && result != CUDA_SUCCESS) {
        process_enter(overhead->process);
        OWN_CALL(REAL(cuLibraryUnload)(*library));
        process_leave();
        forget(overhead, *library);
        *library = before;
    }
    return result;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, int *jit_options,
                           void **jit_values, unsigned int jit_count, int *options, void **values,
                           unsigned int count)
{
    struct overhead overhead;
    CUlibrary before = library == NULL ? NULL : *library;
    CUresult result = begin_image(&overhead, code);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuLibraryLoadData)(library, code, jit_options, jit_values, jit_count, options,
                                     values, count);
    return end_library(&overhead, result, library, before);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, int *jit_options,
                               void **jit_values, unsigned int jit_count, int *options,
                               void **values, unsigned int count)
{
    struct overhead overhead;
    CUlibrary before = library == NULL ? NULL : *library;
    CUresult result = begin_file(&overhead, path);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuLibraryLoadFromFile)(library, path, jit_options, jit_values, jit_count, options,
                                         values, count);
    return end_library(&overhead, result, library, before);
}

/* What is remembered of a handle that is about to go. */
static struct process *take(const void *handle, struct pointer *loaded)
{
    struct process *process = process_limited();
    if (process == NULL)
        return NULL;
    process_enter(process);
    if (pointers_take(&process->holdings[HOLDING_MODULE], (uintptr_t)handle, loaded) == 0)
        return process;
    process_leave();
    return NULL;
}

static CUresult end_unload(struct process *process, struct pointer loaded, CUresult result)
{
    if (process == NULL)
        return result;
    if (result == CUDA_SUCCESS)
        overhead_shrunk(process, loaded.device, true);
    else
        pointers_add(&process->holdings[HOLDING_MODULE], loaded);
    process_leave();
    return result;
}

CUresult cuModuleUnload(CUmodule module)
{
    struct pointer loaded = {0};
    struct process *process = take(module, &loaded);
    return end_unload(process, loaded, REAL(cuModuleUnload)(module));
}

CUresult cuLibraryUnload(CUlibrary library)
{
    struct pointer loaded = {0};
    struct process *process = take(library, &loaded);
    return end_unload(process, loaded, REAL(cuLibraryUnload)(library));
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    CUresult result = overhead_grown(REAL(cuKernelGetFunction)(function, kernel));
    struct process *process = result == CUDA_SUCCESS ? process_limited() : NULL;
    if (process != NULL)
        collective_set(process, *function, collective_has(process, kernel));
    return result;
}

/* A library may be loaded only when one of its kernels is asked for: then the figures are old. */
CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    return overhead_grown(REAL(cuLibraryGetModule)(module, library));
}
