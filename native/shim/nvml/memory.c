/* NVML's view of a GPU's memory: the container's limit, and what all of its processes hold.
 *
 * The driver answers first and its errors stand, also about the struct's version. A GPU that is not
 * of the container is left as the driver shows it.
 */
#include "nvml/observe.h"

struct view {
    unsigned long long total, used;
};

static unsigned long long least(unsigned long long left, unsigned long long right)
{
    return left < right ? left : right;
}

/* The GPU's memory as the container has it; false where there is nothing to change. */
static bool view_of(const struct observation *seen, unsigned long long real, struct view *view)
{
    if (seen->device < 0)
        return false;
    const struct session *session = seen->session;
    view->total = least(real, atomic_load(&session->config->limits[seen->device].memory_bytes));
    view->used = least(view->total, books_total(&session->books, (unsigned)seen->device));
    return true;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct observation seen;
    struct view view;
    nvmlReturn_t result = observe_begin(&seen, device, HOOK_CALLER);
    if (result != NVML_SUCCESS)
        return result;
    result = REAL(nvmlDeviceGetMemoryInfo)(device, memory);
    if (result == NVML_SUCCESS && view_of(&seen, memory->total, &view))
        *memory = (nvmlMemory_t){view.total, view.total - view.used, view.used};
    observe_end();
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    struct observation seen;
    struct view view;
    nvmlReturn_t result = observe_begin(&seen, device, HOOK_CALLER);
    if (result != NVML_SUCCESS)
        return result;
    result = REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    if (result == NVML_SUCCESS && view_of(&seen, memory->total, &view))
        *memory =
            (nvmlMemory_v2_t){memory->version, view.total, 0, view.total - view.used, view.used};
    observe_end();
    return result;
}

/* The window through which the host reaches device memory: no more of it is the container's than
 * it has memory, and no more of that is in use than it holds. */
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    struct observation seen;
    struct view view;
    nvmlReturn_t result = observe_begin(&seen, device, HOOK_CALLER);
    if (result != NVML_SUCCESS)
        return result;
    result = REAL(nvmlDeviceGetBAR1MemoryInfo)(device, memory);
    if (result == NVML_SUCCESS && view_of(&seen, memory->bar1Total, &view)) {
        unsigned long long used = least(memory->bar1Used, view.used);
        *memory = (nvmlBAR1Memory_t){view.total, view.total - used, used};
    }
    observe_end();
    return result;
}
