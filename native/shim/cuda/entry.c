/* Where a program comes in: cuInit, and cuGetProcAddress in its forms.
 *
 * The driver answers first; the pointer it returns decides. Equal to one of its exports that we
 * hook, it becomes our hook of exactly that export, so that versions, per-thread flags and status
 * are the driver's own. Drivers known answer with their exports (535 to 555). Should one not, name
 * and version say which export is meant. Programs ask before cuInit; whether they need the hook is
 * in a file then.
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

/* Where all GPUs are granted whole a launch need not come by us. */
static bool needless(const struct hook *hook)
{
    const struct process *process = hook->paces ? process_state() : NULL;
    return process != NULL && session_whole(&process->session);
}

/* A variant of a function we hook that cannot be placed: a newer driver's. Tell the manager. */
static void report_unplaced(const char *symbol)
{
    const struct hook *family = hook_family(symbol);
    struct process *process = family != NULL ? process_state() : NULL;
    if (process != NULL && !needless(family))
        process_degrade(process, family->essential ? VCUDA_UNLIMITED : VCUDA_DEGRADED_ENTRY);
}

static CUresult ask(const char *symbol, void **entry, int version, cuuint64_t flags)
{
    CUresult result = REAL(cuGetProcAddress_v2)(symbol, entry, version, flags, NULL);
    return result == CUDA_ERROR_NOT_FOUND ? REAL(cuGetProcAddress)(symbol, entry, version, flags)
                                          : result;
}

static bool check_exports(void)
{
    static const struct {
        const char *symbol;
        int version;
    } known[] = {{"cuMemAlloc", 3020}, {"cuLaunchKernel", 4000}, {"cuMemCreate", 10020}};
    for (size_t index = 0; index < sizeof known / sizeof *known; index++) {
        void *entry = NULL;
        if (ask(known[index].symbol, &entry, known[index].version, 0) == CUDA_SUCCESS &&
            entry != NULL && hook_at(entry) == NULL)
            return false;
    }
    return true;
}

/* Are the driver's answers its exports? Asked once, of functions that each driver has. */
static bool answers_exports(void)
{
    enum { UNKNOWN, EXPORTS, OTHERS };
    static atomic_int answers = UNKNOWN;
    if (atomic_load(&answers) == UNKNOWN)
        atomic_store(&answers, check_exports() ? EXPORTS : OTHERS);
    return atomic_load(&answers) == EXPORTS;
}

/* What a program asked for, and the driver's answer. */
struct question {
    const char *symbol;
    int version;
    cuuint64_t flags;
    bool per_thread;
    void *entry;
};

/* A variant that came after the table was checked has another answer than the newest that was
 * there then. Example: cuMemAlloc of CUDA 14, whose parameters nobody knows here. */
static bool newer(const struct question *question)
{
    void *entry = NULL;
    return question->version > HOOKS_CHECKED &&
           (ask(question->symbol, &entry, HOOKS_CHECKED, question->flags) != CUDA_SUCCESS ||
            entry != question->entry);
}

static const struct hook *place(const struct question *question)
{
    const struct hook *hook = hook_at(question->entry);
    if (hook != NULL || answers_exports() || newer(question))
        return hook;
    return hook_named(question->symbol, question->version, question->per_thread);
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

static CUresult route(CUresult result, struct question question, void **entry)
{
    if (result != CUDA_SUCCESS || question.symbol == NULL || entry == NULL || *entry == NULL)
        return result;
    question.entry = *entry;
    const struct hook *hook = place(&question);
    if (hook == NULL || left_out(hook))
        report_unplaced(question.symbol);
    else if (!needless(hook))
        *entry = hook->function;
    return result;
}

enum { LEGACY_STREAM = 1, PER_THREAD_STREAM = 2 };

CUresult cuGetProcAddress(const char *symbol, void **entry, int version, cuuint64_t flags)
{
    struct question question = {symbol, version, flags, (flags & PER_THREAD_STREAM) != 0, NULL};
    return route(REAL(cuGetProcAddress)(symbol, entry, version, flags), question, entry);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **entry, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    struct question question = {symbol, version, flags, (flags & PER_THREAD_STREAM) != 0, NULL};
    return route(REAL(cuGetProcAddress_v2)(symbol, entry, version, flags, status), question, entry);
}

CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **entry, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *status)
{
    struct question question = {symbol, version, flags, (flags & LEGACY_STREAM) == 0, NULL};
    return route(REAL(cuGetProcAddress_v2_ptsz)(symbol, entry, version, flags, status), question,
                 entry);
}
