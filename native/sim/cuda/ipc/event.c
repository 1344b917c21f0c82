/* Events between processes: who recorded one last writes into its page where in whose queue.
 *
 * Unlike on a real GPU the caller, not the stream, waits in cuStreamWaitEvent for such an event.
 */
#include "core/timeline.h"
#include "cuda/ipc/ipc.h"
#include "cuda/stream/queue.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DISABLE_TIMING = 2, INTERPROCESS = 4 };

/* Guarded by sim_lock(). pid 0: not recorded yet. */
struct event_page {
    int32_t pid;
    uint32_t slot;
    uint64_t start_time;
    uint32_t gpu;
    uint32_t lane;
    uint64_t position;
};

static struct event_page *show(int file)
{
    void *page = mmap(NULL, sizeof(struct event_page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return page != MAP_FAILED ? page : NULL;
}

CUresult ipc_event_begin(struct event *event)
{
    if ((event->flags & INTERPROCESS) == 0)
        return CUDA_SUCCESS;
    if ((event->flags & DISABLE_TIMING) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    int file = memfd_create("simulated event", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, sizeof(struct event_page)) == 0)
        event->page = show(file);
    event->file = file;
    if (event->page != NULL)
        return CUDA_SUCCESS;
    close(file);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void ipc_event_end(struct event *event)
{
    if (event->page == NULL)
        return;
    munmap(event->page, sizeof *event->page);
    if (event->file > 0)
        close(event->file);
}

void ipc_event_recorded(struct driver *driver, struct event *event)
{
    if (event->page == NULL)
        return;
    sim_lock(driver->state);
    *event->page =
        (struct event_page){.pid = driver->process->pid,
                            .slot = (uint32_t)(driver->process - driver->state->processes),
                            .start_time = driver->process->start_time,
                            .gpu = driver->gpus[event->device],
                            .lane = event->lane,
                            .position = event->position};
    sim_unlock(driver->state);
}

/* 0 if it has happened, else when to look again; what a process queued that is gone has happened,
 * and it may be gone any moment. */
static uint64_t expected(struct driver *driver, const struct event *event)
{
    uint64_t end = 0;
    uint64_t now = sim_lock(driver->state);
    struct event_page page = *event->page;
    const struct sim_process *process = &driver->state->processes[page.slot % SIM_PROCESSES];
    if (page.pid != 0 && process->pid == page.pid && process->start_time == page.start_time) {
        timeline_advance(driver->state, page.gpu, now);
        struct sim_reach reach = {page.position + 1, UINT64_C(1) << page.lane % SIM_LANES};
        if (!timeline_reached(driver->state, process, page.gpu, reach))
            end = timeline_predict(driver->state, process, page.gpu, reach);
    }
    sim_unlock(driver->state);
    return end < now + REAP_PERIOD_NS ? end : now + REAP_PERIOD_NS;
}

bool ipc_event_happened(struct driver *driver, const struct event *event)
{
    return expected(driver, event) == 0;
}

void ipc_event_wait(struct driver *driver, const struct event *event)
{
    uint64_t again;
    while ((again = expected(driver, event)) != 0)
        queue_sleep(again);
}

static bool is_event(const struct event *event)
{
    return event != NULL && event->kind == EVENT;
}

API CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent event)
{
    struct driver *driver;
    struct ipc_ticket ticket = {.magic = IPC_EVENT, .bytes = sizeof(struct event_page)};
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_event(event) || event->file <= 0 || !ipc_address(driver, event->file, &ticket))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = (CUipcEventHandle){0};
    memcpy(out->reserved, &ticket, sizeof ticket);
    return CUDA_SUCCESS;
}

static CUresult open_event(const struct ipc_ticket *ticket, struct event *event)
{
    int file = ipc_reach(ticket);
    if (file < 0)
        return CUDA_ERROR_INVALID_HANDLE;
    event->page = show(file);
    close(file);
    return event->page != NULL ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED;
}

API CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
    struct driver *driver;
    struct context *context;
    struct ipc_ticket ticket;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(&ticket, handle.reserved, sizeof ticket);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (ticket.magic != IPC_EVENT)
        return CUDA_ERROR_INVALID_HANDLE;
    if (ticket.pid == driver->process->pid) /* for other processes only */
        return CUDA_ERROR_INVALID_CONTEXT;
    struct event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *event = (struct event){.kind = EVENT, .device = context->device, .flags = DISABLE_TIMING};
    result = open_event(&ticket, event);
    if (result == CUDA_SUCCESS)
        *out = event;
    else
        free(event);
    return result;
}
