/* Where a program comes in: cuInit, and cuGetProcAddress in its forms.
 *
 * The driver answers first; the pointer it returns decides. Equal to one of its exports that we
 * hook, it becomes our hook of exactly that export, so that versions, per-thread flags and status
 * are the driver's own. Programs ask before cuInit; whether they need the hook is in a file then.
 */
#include "cuda/hook.h"
#include "cuda/process.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

CUresult cuInit(unsigned int flags)
{
    if (process_begin() == GATE_REFUSED)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    return REAL(cuInit)(flags);
}

/* A variant of a function we hook that is not in our table: a newer driver's. Tell the manager. */
static void report_unplaced(const char *symbol)
{
    struct process *process = hook_family(symbol) != NULL ? process_state() : NULL;
    if (process != NULL)
        process_degrade(process, VCUDA_DEGRADED_ENTRY);
}

/* Where all GPUs are granted whole a launch need not come by us. */
static bool needless(const struct hook *hook)
{
    const struct process *process = hook->paces ? process_state() : NULL;
    return process != NULL && session_whole(&process->session);
}

#ifdef VCUDA_UNHOOKED
/* Test builds alone. The variable of that name lists kinds (launch), families (cuMemAlloc) and
 * exports (cuMemAlloc_v2), with commas between: cuGetProcAddress answers with the driver's own
 * for them. Example: a program fails with the shim only, and halves of the list say by which. */
static bool listed(const char *word)
{
    const char *list = getenv(VCUDA_UNHOOKED);
    size_t length = strlen(word);
    for (const char *at = list; at != NULL; at = strchr(at, ','), at += at != NULL)
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

static bool left_out(const struct hook *hook)
{
    return listed(hook->kind) || listed(hook->family) || listed(hook->symbol);
}
#else
static bool left_out(const struct hook *hook)
{
    (void)hook;
    return false;
}
#endif

static CUresult route(CUresult result, const char *symbol, void **entry)
{
    if (result != CUDA_SUCCESS || symbol == NULL || entry == NULL || *entry == NULL)
        return result;
    const struct hook *hook = hook_at(*entry);
    if (hook == NULL)
        report_unplaced(symbol);
    else if (!left_out(hook) && !needless(hook))
        *entry = hook->function;
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
