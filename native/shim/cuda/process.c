#include "cuda/process.h"

#include "core/memory/slot.h"
#include "runtime/fork.h"
#include "runtime/real.h"

/* Long enough for a manager that is being restarted, short enough for a user who waits. */
static const struct session_manner manner = {
    .flags = VCUDA_HELLO_PERSISTENT,
    .patience_ns = UINT64_C(9500000000),
};

void *_Atomic process_place;

/* How often the thread has entered, and how it could be cancelled before. A jump out of a call
 * leaves the count raised, so no limit may hang on it. */
static _Thread_local struct {
    int count, cancellable;
} entered;

void process_enter(struct process *process)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    if (before == PTHREAD_CANCEL_ENABLE) /* whatever is counted was left by a jump */
        entered.count = 0;
    if (entered.count++ > 0)
        return;
    entered.cancellable = before;
    session_keep(&process->session);
}

bool process_nested(void)
{
    return entered.count > 1;
}

void process_leave(void)
{
    if (--entered.count == 0)
        pthread_setcancelstate(entered.cancellable, NULL);
}

/* Does the call come from the driver itself, while it is in another one? Only a driver that is not
 * bound to itself calls us so; none since 535 is of that kind. */
static bool is_inner(void)
{
    enum { UNKNOWN, SYMBOLIC, OTHER };
    static atomic_int driver = UNKNOWN;
    if (entered.count == 0)
        return false;
    if (atomic_load(&driver) == UNKNOWN)
        atomic_store(&driver, real_is_symbolic() ? SYMBOLIC : OTHER);
    return atomic_load(&driver) == OTHER;
}

void process_move_begin(struct process *process)
{
    process_enter(process);
    slot_move_begin(process->session.books.page, process->session.books.slot);
}

void process_move_end(struct process *process)
{
    slot_move_end(process->session.books.page, process->session.books.slot);
    process_leave();
}

struct process *process_state(void)
{
    return fork_state(&process_place, sizeof(struct process));
}

/* A child begins with its parent's count, and so goes on from there. */
static void choose_epoch(struct process *process)
{
    static _Atomic uint64_t epochs;
    uint64_t none = 0;
    if (process_epoch(process) == 0)
        atomic_compare_exchange_strong(&process->epoch, &none, atomic_fetch_add(&epochs, 1) + 1);
}

static enum gate attach(struct process **process, bool again)
{
    *process = process_state();
    if (*process == NULL)
        return GATE_REFUSED;
    switch (session_attach(&(*process)->session, manner, again)) {
    case SESSION_ATTACHED:
        choose_epoch(*process);
        return GATE_LIMITED;
    case SESSION_UNMANAGED:
        return GATE_DRIVER;
    default:
        return GATE_REFUSED;
    }
}

/* Before the session is attached only remembered; process_begin() delivers. */
void process_degrade(struct process *process, uint32_t flag)
{
    atomic_fetch_or(&process->degraded, flag);
    if (session_phase(&process->session) == SESSION_ATTACHED)
        books_degrade(&process->session.books, flag);
}

struct process *process_limited(void)
{
    struct process *process = process_known();
    bool attached = process != NULL && session_phase(&process->session) == SESSION_ATTACHED;
    return attached && !is_inner() ? process : NULL;
}

enum gate process_gate(struct process **process)
{
    return is_inner() ? GATE_DRIVER : attach(process, false);
}

CUresult process_enter_limited(struct process **process)
{
    struct process *limited = NULL;
    enum gate gate = process_gate(&limited);
    *process = gate == GATE_LIMITED ? limited : NULL;
    if (gate == GATE_LIMITED)
        process_enter(limited);
    return gate == GATE_REFUSED ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_SUCCESS;
}

enum gate process_begin(void)
{
    struct process *process = NULL;
    enum gate gate = is_inner() ? GATE_DRIVER : attach(&process, true);
    if (gate == GATE_LIMITED && atomic_load(&process->degraded) != 0)
        books_degrade(&process->session.books, atomic_load(&process->degraded));
    if (gate == GATE_REFUSED)
        session_complain(process == NULL ? NULL : &process->session, "cuInit");
    return gate;
}

enum { UNKNOWN = -2 }; /* the driver does not say, yet */

static CUresult find_uuid(CUuuid *uuid, CUdevice ordinal)
{
    CUresult result = REAL(cuDeviceGetUuid_v2)(uuid, ordinal);
    if (result == CUDA_ERROR_NOT_FOUND || result == CUDA_ERROR_NOT_SUPPORTED) /* before 11.4 */
        result = REAL(cuDeviceGetUuid)(uuid, ordinal);
    return result;
}

bool process_ordinal(CUdevice ordinal)
{
    CUuuid uuid;
    return find_uuid(&uuid, ordinal) == CUDA_SUCCESS;
}

static int find_device(const struct process *process, CUdevice ordinal)
{
    CUuuid uuid;
    CUresult result = find_uuid(&uuid, ordinal);
    return result == CUDA_SUCCESS ? session_device(&process->session, uuid.bytes) : UNKNOWN;
}

int process_device(struct process *process, CUdevice ordinal)
{
    if (ordinal < 0 || ordinal >= PROCESS_ORDINALS)
        return -1;
    int known = atomic_load_explicit(&process->devices[ordinal], memory_order_relaxed);
    if (known == 0) {
        int found = find_device(process, ordinal);
        if (found == UNKNOWN)
            return -1;
        known = found + 2;
        atomic_store_explicit(&process->devices[ordinal], (int8_t)known, memory_order_relaxed);
    }
    return known - 2;
}

CUresult process_current(struct process *process, int *device)
{
    CUdevice ordinal;
    CUresult result = REAL(cuCtxGetDevice)(&ordinal);
    if (result == CUDA_SUCCESS)
        *device = process_device(process, ordinal);
    return result;
}
