/* Physical memory for other processes: a file descriptor stands for it.
 *
 * The descriptor is of the memory file itself, which ends with a passport: what the memory is, and
 * who it is among processes.
 */
#include "core/share.h"
#include "cuda/virtual/virtual.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PASSPORT UINT64_C(0x74726f7073736170)

/* gpu: of the machine, since devices are numbered by each process for itself. */
struct passport {
    uint64_t magic;
    uint64_t share;
    uint64_t bytes;
    uint32_t gpu;
    uint32_t on_host;
    uint32_t multicast;
    uint32_t team_size;
    CUmemAllocationProp properties;
};

static struct passport passport_of(const struct driver *driver, const struct physical *physical)
{
    bool on_host = physical->device == ON_HOST;
    return (struct passport){.magic = PASSPORT,
                             .share = physical->share,
                             .bytes = physical->bytes,
                             .gpu = on_host ? 0 : driver->gpus[physical->device],
                             .on_host = on_host,
                             .multicast = physical->multicast,
                             .team_size = physical->team_size,
                             .properties = physical->properties};
}

static bool charged(const struct physical *physical)
{
    return !physical->multicast && physical->device != ON_HOST;
}

/* Make it known among processes, once. 0, or a negated errno. */
static int publish(struct driver *driver, struct physical *physical)
{
    int error = physical_back(physical);
    if (error != 0)
        return error;
    if (charged(physical) && physical->share == 0) {
        unsigned gpu = driver->gpus[physical->device];
        sim_lock(driver->state);
        physical->share = share_begin(driver->state, driver->process, gpu, physical->bytes);
        sim_unlock(driver->state);
        if (physical->share == 0)
            return -ENOMEM;
    }
    struct passport passport = passport_of(driver, physical);
    ssize_t size = pwrite(physical->file, &passport, sizeof passport, (off_t)physical->bytes);
    return size == (ssize_t)sizeof passport ? 0 : -EIO;
}

static CUresult export(struct driver *driver, struct physical *physical, int *out)
{
    if (physical == NULL || (physical->properties.requestedHandleTypes & FILE_DESCRIPTOR) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (publish(driver, physical) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    int file = fcntl(physical->file, F_DUPFD_CLOEXEC, 0);
    if (file < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = file;
    return CUDA_SUCCESS;
}

API CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
                                          unsigned long long flags)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || type != FILE_DESCRIPTOR || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    result = export(driver, physical_find(driver, handle), out);
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

static bool read_passport(int file, struct passport *out)
{
    struct stat found;
    if (fstat(file, &found) != 0 || found.st_size < (off_t)sizeof *out)
        return false;
    off_t start = (found.st_size - (off_t)sizeof *out);
    return pread(file, out, sizeof *out, start) == (ssize_t)sizeof *out && out->magic == PASSPORT &&
           out->bytes == (uint64_t)start;
}

/* The device of this process that is the machine's `gpu`; NO_DEVICE if it is hidden. */
static int device_of(const struct driver *driver, uint32_t gpu)
{
    for (unsigned device = 0; device < driver->device_count; device++)
        if (driver->gpus[device] == gpu)
            return (int)device;
    return NO_DEVICE;
}

static CUresult join(struct driver *driver, struct physical *physical, unsigned gpu)
{
    uint64_t now = sim_lock(driver->state);
    physical->share =
        share_join(driver->state, driver->process, physical->share, gpu, physical->bytes, now);
    sim_unlock(driver->state);
    return physical->share != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult import(struct driver *driver, struct physical *physical, unsigned gpu)
{
    CUresult result = charged(physical) ? join(driver, physical, gpu) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    if (physical_enter(driver, physical) == 0)
        return CUDA_SUCCESS;
    if (charged(physical)) {
        sim_lock(driver->state);
        share_end(driver->state, driver->process, physical->share);
        sim_unlock(driver->state);
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static struct physical *described(const struct driver *driver, const struct passport *passport,
                                  int file)
{
    struct physical *physical = calloc(1, sizeof *physical);
    if (physical == NULL)
        return NULL;
    int device = passport->on_host ? ON_HOST : device_of(driver, passport->gpu);
    *physical = (struct physical){.device = device,
                                  .bytes = passport->bytes,
                                  .file = file,
                                  .share = passport->share,
                                  .multicast = passport->multicast,
                                  .team_size = passport->team_size,
                                  .properties = passport->properties};
    if (device >= 0)
        physical->properties.location.id = device;
    return physical;
}

API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *from, int type)
{
    struct driver *driver;
    struct passport passport;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    int file = (int)(intptr_t)from;
    if (out == NULL || type != FILE_DESCRIPTOR || !read_passport(file, &passport))
        return CUDA_ERROR_INVALID_VALUE;
    if (!passport.on_host && device_of(driver, passport.gpu) == NO_DEVICE)
        return CUDA_ERROR_INVALID_DEVICE;
    int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
    struct physical *physical = own >= 0 ? described(driver, &passport, own) : NULL;
    if (physical == NULL) {
        close(own);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&driver->mutex);
    result = import(driver, physical, passport.gpu);
    if (result == CUDA_SUCCESS)
        *out = physical->handle;
    pthread_mutex_unlock(&driver->mutex);
    if (result != CUDA_SUCCESS) {
        close(own);
        free(physical);
    }
    return result;
}
