/* Where a program comes in: cuInit, and cuGetProcAddress in its forms.
 *
 * The driver answers first; the pointer it returns decides. Equal to one of its exports that we
 * hook, it becomes our hook of exactly that export, so that versions, per-thread flags and status
 * are the driver's own. Programs ask before cuInit; whether they need the hook is in a file then.
 */
#include "cuda/process.h"

#include <stddef.h>

CUresult cuInit(unsigned int flags)
{
    if (process_begin() == GATE_REFUSED)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    return REAL(cuInit)(flags);
}

/* A variant of a function we hook that is not in our table: a newer driver's. Tell the manager. */
static void report_unplaced(const char *symbol)
{
    struct process *process = cuda_family(symbol) ? process_state() : NULL;
    if (process != NULL)
        process_degrade(process, VCUDA_DEGRADED_ENTRY);
}

/* Where all GPUs are granted whole a launch need not come by us. */
static bool needless(const void *hook)
{
    const struct process *process = cuda_paces(hook) ? process_state() : NULL;
    return process != NULL && session_whole(&process->session);
}

static CUresult route(CUresult result, const char *symbol, void **entry)
{
    if (result != CUDA_SUCCESS || entry == NULL || *entry == NULL)
        return result;
    void *hook = cuda_route(*entry);
    if (hook == *entry && symbol != NULL)
        report_unplaced(symbol);
    if (!needless(hook))
        *entry = hook;
    return result;
}

CUresult cuGetProcAddress(const char *symbol, void **entry, int version, cuuint64_t flags)
{
    return route(REAL(cuGetProcAddress)(symbol, entry, version, flags), symbol, entry);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **entry, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    return route(REAL(cuGetProcAddress_v2)(symbol, entry, version, flags, status), symbol, entry);
}

CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **entry, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *status)
{
    return route(REAL(cuGetProcAddress_v2_ptsz)(symbol, entry, version, flags, status), symbol,
                 entry);
}
