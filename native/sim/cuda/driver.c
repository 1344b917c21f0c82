#include "cuda/driver.h"
#include "core/device_nodes.h"
#include "core/process.h"
#include "cuda/memory/location.h"
#include "cuda/pool/pool.h"
#include "cuda/visible_devices.h"
#include <stdlib.h>
#include <sys/mman.h>

static struct driver *driver_page;
static pthread_once_t page_once = PTHREAD_ONCE_INIT;

static void make_page(void)
{
    void *page = mmap(NULL, sizeof(struct driver), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED && madvise(page, sizeof(struct driver), MADV_WIPEONFORK) == 0)
        driver_page = page; /* zero is the initial state of all of it, mutexes too */
}

static struct driver *own_page(void)
{
    pthread_once(&page_once, make_page);
    return driver_page;
}

static __thread bool forbidden;

void driver_forbid(bool now)
{
    forbidden = now;
}

CUresult driver_get(struct driver **out)
{
    if (forbidden)
        return CUDA_ERROR_NOT_PERMITTED;
    struct driver *driver = own_page();
    /* Pairs with the release in start(): what cuInit wrote is seen. */
    if (driver == NULL || !atomic_load_explicit(&driver->ready, memory_order_acquire))
        return CUDA_ERROR_NOT_INITIALIZED;
    *out = driver;
    return CUDA_SUCCESS;
}

CUresult driver_device(CUdevice device, struct driver **driver, const struct sim_gpu **gpu)
{
    CUresult result = driver_get(driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (device < 0 || (unsigned)device >= (*driver)->device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *gpu = &(*driver)->state->machine.gpus[(*driver)->gpus[device]];
    return CUDA_SUCCESS;
}

CUresult driver_context(struct driver **driver, struct context **context)
{
    CUresult result = driver_get(driver);
    if (result != CUDA_SUCCESS)
        return result;
    *context = context_current(*driver);
    return *context != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

uint64_t driver_number(struct driver *driver)
{
    /* Relaxed: only uniqueness counts. */
    return atomic_fetch_add_explicit(&driver->numbers, 1, memory_order_relaxed) + 1;
}

static void set_up_pools(struct driver *driver)
{
    for (unsigned device = 0; device < driver->device_count; device++) {
        struct pool *pool = &driver->default_pools[device];
        *pool = (struct pool){.kind = POOL,
                              .device = (int)device,
                              .standard = true,
                              .location = {LOCATION_DEVICE, (int)device},
                              .file = -1};
        pool_permit_own(pool);
        driver->pools[device] = &driver->default_pools[device];
    }
}

static CUresult attach(struct driver *driver)
{
    uint64_t now = sim_lock(driver->state);
    int result = process_attach(driver->state, now, &driver->process);
    sim_unlock(driver->state);
    return result == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

static CUresult start(struct driver *driver)
{
    if (driver->state == NULL && device_nodes_open(&driver->state) != 0)
        return CUDA_ERROR_NO_DEVICE;
    driver->device_count = visible_devices(driver->state, driver->gpus);
    if (driver->device_count == 0)
        return CUDA_ERROR_NO_DEVICE;
    CUresult result = attach(driver);
    if (result != CUDA_SUCCESS)
        return result;
    set_up_pools(driver);
    atomic_store_explicit(&driver->ready, true, memory_order_release);
    return CUDA_SUCCESS;
}

API CUresult cuInit(unsigned flags)
{
    struct driver *driver = own_page();
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (driver == NULL)
        return CUDA_ERROR_UNKNOWN;
    pthread_mutex_lock(&driver->starting);
    bool ready = atomic_load_explicit(&driver->ready, memory_order_relaxed); /* under the mutex */
    CUresult result = ready ? CUDA_SUCCESS : start(driver);
    pthread_mutex_unlock(&driver->starting);
    return result;
}

int driver_cuda_version(void)
{
    struct driver *driver;
    struct sim_state *state;
    if (driver_get(&driver) == CUDA_SUCCESS)
        return driver->state->machine.cuda_version;
    if (device_nodes_open(&state) != 0)
        return DEFAULT_CUDA_VERSION;
    int version = state->machine.cuda_version;
    sim_close(state);
    return version;
}

API CUresult cuDriverGetVersion(int *version)
{
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = driver_cuda_version();
    return CUDA_SUCCESS;
}

API CUresult cuGetExportTable(const void **table, const CUuuid *which)
{
    (void)which; /* none is offered: every UUID is unknown */
    if (table != NULL)
        *table = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

/* A function of the simulator's own: what no shim knows must still reach the driver. */
API CUresult cuSimulatorOnlyFunction(int *value)
{
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *value = 2 * *value + 1;
    return CUDA_SUCCESS;
}
