#include "nvml/observe.h"

#include "glibc.h"
#include "runtime/fork.h"
#include "runtime/real.h"
#include "vcuda_protocol.h"

#include <dlfcn.h>
#include <string.h>

/* An observer has no slot: it reads the books and writes nothing. Monitoring must not hang. */
static const struct session_manner manner = {
    .flags = VCUDA_HELLO_OBSERVER,
    .patience_ns = UINT64_C(2000000000),
};

static _Thread_local int depth; /* in hooks; a jump out of one leaves it raised */
static void *_Atomic place;

/* The session if it is attached. An error if limits cannot be known; NULL and 0 if unmanaged. */
static nvmlReturn_t attach(const struct session **out)
{
    struct session *session = fork_state(&place, sizeof *session);
    enum session_phase phase =
        session == NULL ? SESSION_FAILED : session_attach(session, manner, true);
    *out = phase == SESSION_ATTACHED ? session : NULL;
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

static int find_device(const struct session *session, nvmlDevice_t device)
{
    char text[NVML_DEVICE_UUID_BUFFER_SIZE];
    uint8_t uuid[16];
    if (REAL(nvmlDeviceGetUUID)(device, text, sizeof text) != NVML_SUCCESS)
        return -1;
    return parse_uuid(text, uuid) == 0 ? session_device(session, uuid) : -1;
}

static const void *library_of(const void *address)
{
    Dl_info found;
    return dladdr(address, &found) != 0 ? found.dli_fbase : NULL;
}

/* Is it the driver's own code, or ours, from which the driver may have jumped on? */
static bool is_driver(const void *caller)
{
    const void *library = library_of(caller);
    return library != NULL && (library == library_of(real_symbol("nvmlInit_v2")) ||
                               library == library_of((const void *)observe_begin));
}

nvmlReturn_t observe_begin(struct observation *observation, nvmlDevice_t device, const void *caller)
{
    *observation = (struct observation){.session = NULL, .device = -1};
    bool inner = depth > 0 && is_driver(caller);
    nvmlReturn_t result = inner ? NVML_SUCCESS : attach(&observation->session);
    if (result != NVML_SUCCESS)
        return result;
    depth++;
    if (observation->session != NULL)
        observation->device = find_device(observation->session, device);
    return NVML_SUCCESS;
}

void observe_end(void)
{
    depth--;
}
