/* cuIpc*: memory of one process at an address of another, with the same bytes in it.
 *
 * Exported memory gets a memory file for its pages; another process reaches it through /proc, as
 * long as the exporter lives and both see the same processes. The exporter alone is charged.
 */
#include "cuda/ipc/ipc.h"
#include "cuda/memory/addresses.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LAZY_PEER_ACCESS = 1, PAGE = 4096 };

struct opened {
    struct ipc_ticket ticket;
    unsigned count;
};

static bool is_zero(const char *page)
{
    return page[0] == 0 && memcmp(page, page + 1, PAGE - 1) == 0;
}

/* Only pages with something in them: the rest of the file stays without memory. */
static bool copy_contents(const struct allocation *item, int file)
{
    const char *start = (const char *)(uintptr_t)item->start;
    for (size_t at = 0; item->committed && at < item->mapped; at += PAGE)
        if (!is_zero(start + at) && pwrite(file, start + at, PAGE, (off_t)at) != PAGE)
            return false;
    return true;
}

static bool show(CUdeviceptr start, size_t mapped, int file)
{
    return mmap((void *)(uintptr_t)start, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                file, 0) != MAP_FAILED;
}

/* Move the allocation's pages to a file that others can reach, once. */
static bool publish(struct allocation *item)
{
    if (item->file > 0)
        return true;
    int file = memfd_create("simulated device memory", MFD_CLOEXEC);
    if (file < 0)
        return false;
    if (ftruncate(file, (off_t)item->mapped) != 0 || !copy_contents(item, file) ||
        !show(item->start, item->mapped, file)) {
        close(file);
        return false;
    }
    item->committed = true;
    item->file = file;
    return true;
}

static bool issue(struct driver *driver, struct allocation *item, CUipcMemHandle *out)
{
    struct ipc_ticket ticket = {.magic = IPC_MEMORY, .bytes = item->bytes};
    if (!publish(item) || !ipc_address(driver, item->file, &ticket))
        return false;
    *out = (CUipcMemHandle){0};
    memcpy(out->reserved, &ticket, sizeof ticket);
    return true;
}

bool ipc_capable(const struct allocation *item)
{
    return item->mapping == NULL && item->opened == NULL && item->pool == NULL &&
           item->block == NULL && !item->managed && !item->host;
}

API CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr address)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    struct allocation *item = addresses_find(&driver->memory, address);
    if (item != NULL && ipc_capable(item))
        result = issue(driver, item, out) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

/* What of another process's memory is open in this one: all of the pages it lies in. */
static void count(struct driver *driver, const struct allocation *item, bool opened)
{
    unsigned gpu = driver->gpus[item->context->device];
    uint64_t page = driver->state->machine.driver.page_bytes, bytes = item->bytes;
    if (page > 0)
        bytes = (bytes + page - 1) / page * page;
    sim_lock(driver->state);
    driver->process->imported[gpu] += opened ? bytes : -bytes;
    sim_unlock(driver->state);
}

void ipc_closed(struct driver *driver, struct allocation *gone)
{
    count(driver, gone, false);
    free(gone->opened);
}

static struct allocation *already_open(struct driver *driver, const struct context *context,
                                       const struct ipc_ticket *ticket)
{
    for (size_t i = 0; i < driver->memory.count; i++) {
        struct allocation *item = &driver->memory.items[i];
        if (item->context == context && item->opened != NULL &&
            memcmp(&item->opened->ticket, ticket, sizeof *ticket) == 0)
            return item;
    }
    return NULL;
}

static CUresult enter(struct driver *driver, const struct allocation *wanted, int file,
                      CUdeviceptr *out)
{
    CUdeviceptr start;
    struct allocation gone;
    if (addresses_add(&driver->memory, wanted, false, &start) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct allocation *item = addresses_find(&driver->memory, start);
    if (!show(start, item->mapped, file)) {
        addresses_remove(&driver->memory, start, &gone);
        return CUDA_ERROR_MAP_FAILED;
    }
    item->committed = true;
    *out = start;
    return CUDA_SUCCESS;
}

static CUresult open_new(struct driver *driver, struct context *context,
                         const struct ipc_ticket *ticket, CUdeviceptr *out)
{
    int file = ipc_reach(ticket);
    struct opened *opened = malloc(sizeof *opened);
    CUresult result = file >= 0 && opened != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS) {
        *opened = (struct opened){*ticket, 1};
        struct allocation wanted = {.bytes = ticket->bytes,
                                    .context = context,
                                    .number = driver_number(driver),
                                    .opened = opened};
        result = enter(driver, &wanted, file, out);
        if (result == CUDA_SUCCESS)
            count(driver, &wanted, true);
    }
    if (file >= 0)
        close(file);
    if (result != CUDA_SUCCESS)
        free(opened);
    return result;
}

API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags)
{
    struct driver *driver;
    struct context *context;
    struct ipc_ticket ticket;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(&ticket, handle.reserved, sizeof ticket);
    if (out == NULL || flags != LAZY_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (ticket.magic != IPC_MEMORY)
        return CUDA_ERROR_INVALID_HANDLE;
    if (ticket.pid == driver->process->pid) /* for other processes only */
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&driver->mutex);
    struct allocation *item = already_open(driver, context, &ticket);
    if (item != NULL) {
        item->opened->count++;
        *out = item->start;
    } else {
        result = open_new(driver, context, &ticket, out);
    }
    pthread_mutex_unlock(&driver->mutex);
    return result;
}
ALSO(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle);

API CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    struct driver *driver;
    struct allocation gone;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    struct allocation *item = addresses_find(&driver->memory, address);
    bool open = item != NULL && item->opened != NULL && item->start == address;
    if (open && --item->opened->count == 0 && addresses_remove(&driver->memory, address, &gone))
        ipc_closed(driver, &gone);
    pthread_mutex_unlock(&driver->mutex);
    return open ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
