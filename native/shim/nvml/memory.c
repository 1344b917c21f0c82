/* NVML's view of a GPU's memory: the container's limit, and what all of its processes hold.
 *
 * The driver answers first and its errors stand, also about the struct's version. Its own exports
 * call each other through the shim, so a call from inside of a hook goes straight to the driver.
 */
#include "nvml_hooks.h"
#include "runtime/fork.h"
#include "runtime/session.h"
#include "vcuda_protocol.h"

#include <string.h>

/* An observer has no slot: it reads the books and writes nothing. Monitoring must not hang. */
static const struct session_manner manner = {
    .flags = VCUDA_HELLO_OBSERVER,
    .patience_ns = UINT64_C(2000000000),
};

static _Thread_local int depth;
static void *_Atomic place;

/* The session if it is attached. An error if limits cannot be known; NULL and 0 if unmanaged. */
static nvmlReturn_t observe(struct session **session)
{
    *session = fork_state(&place, sizeof **session);
    if (*session == NULL)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    enum session_phase phase = session_attach(*session, manner, true);
    if (phase != SESSION_ATTACHED)
        *session = NULL;
    return phase == SESSION_FAILED ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_SUCCESS;
}

static int digit_value(char digit)
{
    const char *digits = "0123456789abcdef", *found = strchr(digits, digit | 0x20);
    return digit == 0 || found == NULL ? -1 : (int)(found - digits);
}

/* The 32 hexadecimal digits of `GPU-…` or `MIG-…`, dashes aside. Returns 0, or -1. */
static int parse_uuid(const char *text, uint8_t uuid[16])
{
    int count = 0;
    memset(uuid, 0, 16);
    for (text = strchr(text, '-'); text != NULL && *text != 0; text++) {
        if (*text == '-')
            continue;
        int value = digit_value(*text);
        if (value < 0 || count == 32)
            return -1;
        uuid[count / 2] = (uint8_t)(uuid[count / 2] << 4 | value);
        count++;
    }
    return count == 32 ? 0 : -1;
}

/* Index of the GPU in the configuration; -1 if it is not of this container. */
static int find_device(const struct session *session, nvmlDevice_t device)
{
    char text[NVML_DEVICE_UUID_BUFFER_SIZE];
    uint8_t uuid[16];
    if (REAL(nvmlDeviceGetUUID)(device, text, sizeof text) != NVML_SUCCESS)
        return -1;
    return parse_uuid(text, uuid) == 0 ? session_device(session, uuid) : -1;
}

struct view {
    unsigned long long total, used;
};

/* The GPU's memory as the container has it; false for a GPU that is not of it. */
static bool view_of(nvmlDevice_t device, const struct session *session, unsigned long long real,
                    struct view *view)
{
    int index = session == NULL ? -1 : find_device(session, device);
    if (index < 0)
        return false;
    uint64_t limit = atomic_load(&session->config->limits[index].memory_bytes);
    uint64_t held = books_total(&session->books, (unsigned)index);
    view->total = limit < real ? limit : real;
    view->used = held < view->total ? held : view->total;
    return true;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct session *session = NULL;
    struct view view;
    nvmlReturn_t result = depth > 0 ? NVML_SUCCESS : observe(&session);
    if (result != NVML_SUCCESS)
        return result;
    depth++;
    result = REAL(nvmlDeviceGetMemoryInfo)(device, memory);
    if (result == NVML_SUCCESS && view_of(device, session, memory->total, &view))
        *memory = (nvmlMemory_t){view.total, view.total - view.used, view.used};
    depth--;
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    struct session *session = NULL;
    struct view view;
    nvmlReturn_t result = depth > 0 ? NVML_SUCCESS : observe(&session);
    if (result != NVML_SUCCESS)
        return result;
    depth++;
    result = REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    if (result == NVML_SUCCESS && view_of(device, session, memory->total, &view))
        *memory =
            (nvmlMemory_v2_t){memory->version, view.total, 0, view.total - view.used, view.used};
    depth--;
    return result;
}
