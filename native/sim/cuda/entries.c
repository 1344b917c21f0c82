#include "cuda/entries.h"
#include "cuda/driver.h"
#include <string.h>

enum { LEGACY_STREAM = 1, PER_THREAD_STREAM = 2 };
enum { FOUND = 0, SYMBOL_NOT_FOUND = 1, VERSION_NOT_SUFFICIENT = 2 };

static int since(const struct entry *entry, uint64_t flags)
{
    return (flags & PER_THREAD_STREAM) != 0 ? entry->since_per_thread : entry->since;
}

/* The newest variant that is neither newer than asked for nor newer than the driver. */
static int look_up(const char *base, int version, uint64_t flags, void **address)
{
    int newest = driver_cuda_version();
    int best = 0;
    int status = SYMBOL_NOT_FOUND;
    for (unsigned i = 0; i < entry_count; i++) {
        int first = since(&entries[i], flags);
        if (strcmp(entries[i].base, base) != 0 || first > newest)
            continue;
        if (status == SYMBOL_NOT_FOUND)
            status = VERSION_NOT_SUFFICIENT;
        if (first == 0 || first > version || first < best)
            continue;
        best = first;
        *address = entries[i].address;
        status = FOUND;
    }
    return status;
}

static CUresult check(const char *symbol, void **address, uint64_t flags)
{
    if (symbol == NULL || address == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *address = NULL;
    return flags <= (LEGACY_STREAM | PER_THREAD_STREAM) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetProcAddress(const char *symbol, void **address, int version, uint64_t flags)
{
    CUresult result = check(symbol, address, flags);
    if (result != CUDA_SUCCESS)
        return result;
    int status = look_up(symbol, version, flags, address);
    return status == FOUND ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API CUresult cuGetProcAddress_v2(const char *symbol, void **address, int version, uint64_t flags,
                                 int *status)
{
    CUresult result = check(symbol, address, flags);
    if (result != CUDA_SUCCESS)
        return result;
    int found = look_up(symbol, version, flags, address);
    if (status != NULL)
        *status = found;
    return CUDA_SUCCESS;
}
