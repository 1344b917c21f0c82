/* `query`: the devices this program may use, and the memory it is told they have. */
#include "driver.h"
#include "memory.h"
#include "verbs.h"
#include <stdio.h>

static void print_uuid(const unsigned char uuid[16])
{
    printf("GPU-");
    for (int i = 0; i < 16; i++)
        printf(i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
}

static void print_device(int ordinal)
{
    char name[96], text[SIZE_TEXT];
    unsigned char uuid[16];
    size_t available, total, whole;
    int device;
    driver_check(cuDeviceGet(&device, ordinal), "cuDeviceGet");
    driver_check(cuDeviceGetName(name, sizeof name, device), "cuDeviceGetName");
    driver_check(cuDeviceGetUuid(uuid, device), "cuDeviceGetUuid");
    driver_check(cuDeviceTotalMem(&whole, device), "cuDeviceTotalMem");
    driver_use(ordinal);
    driver_check(cuMemGetInfo(&available, &total), "cuMemGetInfo");
    printf("device %d: %s, ", ordinal, name);
    print_uuid(uuid);
    printf(", %s", memory_text(whole, text));
    printf(", %s free", memory_text(available, text));
    printf(" of %s\n", memory_text(total, text));
    driver_check(cuDevicePrimaryCtxRelease(device), "ending the context");
}

int query(const struct options *options)
{
    int version, count;
    (void)options;
    driver_load();
    driver_check(cuDriverGetVersion(&version), "cuDriverGetVersion");
    driver_check(cuDeviceGetCount(&count), "cuDeviceGetCount");
    printf("CUDA %d.%d, %d device%s\n", version / 1000, version % 1000 / 10, count,
           count == 1 ? "" : "s");
    for (int ordinal = 0; ordinal < count; ordinal++)
        print_device(ordinal);
    return 0;
}
