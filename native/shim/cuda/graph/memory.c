#include "cuda/graph/memory.h"

#include "cuda/memory/overhead.h"
#include "cuda/memory/reclaim.h"

static struct graph_pool *pool_of(struct process *process, unsigned device)
{
    return &process->graphs.pools[device];
}

/* The ordinal of a device that has been asked for by it; -1 for others. */
static CUdevice ordinal_of(const struct process *process, unsigned device)
{
    for (CUdevice ordinal = 0; ordinal < PROCESS_ORDINALS; ordinal++)
        if (atomic_load_explicit(&process->devices[ordinal], memory_order_relaxed) ==
            (int)device + 2)
            return ordinal;
    return -1;
}

static CUresult reserved_now(CUdevice ordinal, uint64_t *bytes)
{
    CUstreamCaptureMode mode = own_calls_begin();
    CUresult result =
        REAL(cuDeviceGetGraphMemAttribute)(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, bytes);
    own_calls_end(mode);
    return result;
}

/* Only less than is held is news, for held is as much as the driver may have: unless it took more
 * than it should. */
static void follow(struct process *process, unsigned device)
{
    struct graph_pool *pool = pool_of(process, device);
    struct books *books = &process->session.books;
    uint64_t bound = pool->known + pool->flying;
    if (bound < pool->held) {
        books_release(books, device, pool->held - bound);
        pool->held = bound;
    } else if (pool->known > pool->held) {
        books_admit(books, device, pool->known - pool->held);
        pool->held = pool->known;
    }
}

/* What the driver gave back by itself may be missing from what was measured since. */
static void count(struct process *process, unsigned device, uint64_t known, uint32_t looks,
                  uint64_t ticket)
{
    struct graph_pool *pool = pool_of(process, device);
    if (known < pool->known)
        overhead_freed(process, device);
    if (known < pool->known && looks != pool->looks)
        overhead_presume(process, device, pool->known - known);
    pool->counted = ticket;
    pool->known = known;
    pool->looks = looks;
    pool->fine |= known % GRAPH_COARSE != 0;
    follow(process, device);
}

/* `landed`: of what is flying, what is not any more. */
static void settle(struct process *process, unsigned device, uint64_t landed)
{
    struct graph_pool *pool = pool_of(process, device);
    uint64_t bytes = 0;
    process_move_begin(process);
    pthread_mutex_lock(&pool->mutex);
    uint64_t ticket = ++pool->tickets;
    uint32_t looks = books_looks(&process->session.books);
    pthread_mutex_unlock(&pool->mutex);
    CUresult result = reserved_now(ordinal_of(process, device), &bytes);
    pthread_mutex_lock(&pool->mutex);
    pool->flying -= landed;
    if (result != CUDA_SUCCESS)
        pool->known = pool->held; /* as if all of it had been taken */
    else if (ticket > pool->counted)
        count(process, device, bytes, looks, ticket);
    else
        follow(process, device); /* a later query was counted */
    pthread_mutex_unlock(&pool->mutex);
    process_move_end(process);
}

static bool holds(struct process *process, unsigned device)
{
    struct graph_pool *pool = pool_of(process, device);
    pthread_mutex_lock(&pool->mutex);
    bool held = pool->held > 0;
    pthread_mutex_unlock(&pool->mutex);
    return held;
}

void graph_settle(struct process *process, CUdevice ordinal)
{
    int device = process_device(process, ordinal);
    if (device >= 0 && holds(process, (unsigned)device))
        settle(process, (unsigned)device, 0);
}

void graph_memory_settle_all(struct process *process)
{
    for (unsigned device = 0; device < VCUDA_DEVICES; device++)
        if (holds(process, device))
            settle(process, device, 0);
}

/* Before the driver's memory moves, what it gave back by itself until now is told from what it will
 * (pool_catch_up). */
static void catch_up(struct process *process, unsigned device)
{
    struct graph_pool *pool = pool_of(process, device);
    pthread_mutex_lock(&pool->mutex);
    bool looked = pool->held > 0 && pool->looks != books_looks(&process->session.books);
    pthread_mutex_unlock(&pool->mutex);
    if (looked)
        settle(process, device, 0);
}

static CUresult trim(struct process *process, unsigned device, CUdevice ordinal)
{
    struct graph_pool *pool = pool_of(process, device);
    process_move_begin(process);
    catch_up(process, device);
    pthread_mutex_lock(&pool->mutex);
    pool->trims++; /* before: who launches from now on has no memory yet */
    pthread_mutex_unlock(&pool->mutex);
    CUresult result = REAL(cuDeviceGraphMemTrim)(ordinal);
    settle(process, device, 0);
    process_move_end(process);
    return result;
}

CUresult graph_trim(struct process *process, CUdevice ordinal)
{
    int device = process_device(process, ordinal);
    return device < 0 ? REAL(cuDeviceGraphMemTrim)(ordinal)
                      : trim(process, (unsigned)device, ordinal);
}

bool graph_reclaim(struct process *process, unsigned device)
{
    if (!holds(process, device))
        return false;
    trim(process, device, ordinal_of(process, device));
    return true;
}

static uint64_t need_on(const struct graph_pool *pool, const struct graph_exec *exec,
                        unsigned device)
{
    return pool->fine ? exec->need.fine[device] : exec->need.coarse[device];
}

/* Has the graph its memory from its last launch? Then this one is in flight with nothing reserved:
 * what a trim that comes between gives back stays in the books until it has landed. */
static bool fly_again(struct graph_flight *flight, unsigned device)
{
    struct graph_pool *pool = pool_of(flight->process, device);
    struct graph_exec *exec = flight->exec;
    pthread_mutex_lock(&pool->mutex);
    bool again =
        exec->launched[device] == pool->trims + 1 && exec->stream == flight->stream && !pool->keeps;
    if (again) {
        flight->flying[device] = need_on(pool, exec, device);
        pool->flying += flight->flying[device];
        flight->trims[device] = pool->trims;
    }
    pthread_mutex_unlock(&pool->mutex);
    return again;
}

static uint64_t need_now(const struct graph_flight *flight, unsigned device)
{
    struct graph_pool *pool = pool_of(flight->process, device);
    pthread_mutex_lock(&pool->mutex);
    uint64_t bytes = need_on(pool, flight->exec, device);
    pthread_mutex_unlock(&pool->mutex);
    return bytes;
}

static int fly(struct graph_flight *flight, unsigned device)
{
    struct process *process = flight->process;
    struct graph_pool *pool = pool_of(process, device);
    uint64_t limit = process_memory_limit(process, device), bytes = need_now(flight, device);
    int error = books_reserve(&process->session.books, device, bytes, limit);
    if (error != 0)
        return error;
    pthread_mutex_lock(&pool->mutex);
    flight->flying[device] = bytes;
    flight->trims[device] = pool->trims;
    pool->flying += bytes;
    pool->held += bytes;
    pthread_mutex_unlock(&pool->mutex);
    return 0;
}

static bool take_off(struct graph_flight *flight, unsigned device)
{
    struct process *process = flight->process;
    catch_up(process, device);
    if (fly_again(flight, device) || fly(flight, device) == 0)
        return true;
    reclaim(process, device);
    return fly(flight, device) == 0;
}

static void land(struct graph_flight *flight)
{
    for (unsigned device = 0; device < VCUDA_DEVICES; device++)
        if (flight->flying[device] > 0)
            settle(flight->process, device, flight->flying[device]);
    process_move_end(flight->process);
}

/* Take off on all devices that the graph needs. Returns the one that has no room; VCUDA_DEVICES if
 * none. */
static unsigned take_off_all(struct graph_flight *flight)
{
    unsigned device = 0;
    process_move_begin(flight->process);
    while (device < VCUDA_DEVICES &&
           (flight->exec->need.fine[device] == 0 || take_off(flight, device)))
        device++;
    if (device == VCUDA_DEVICES)
        return device;
    land(flight);
    *flight = (struct graph_flight){
        .process = flight->process, .exec = flight->exec, .stream = flight->stream};
    return device;
}

/* Before a refusal it is measured what may be less than the books say. */
CUresult graph_flight_begin(struct graph_flight *flight, struct process *process,
                            struct graph_exec *exec, CUstream stream)
{
    *flight = (struct graph_flight){.process = process, .exec = exec, .stream = stream};
    if (exec->need.foreign) /* as if the device had no memory */
        return CUDA_ERROR_OUT_OF_MEMORY;
    unsigned device = take_off_all(flight);
    int times = 0;
    while (device < VCUDA_DEVICES &&
           overhead_reconsider(process, device, need_now(flight, device), &times))
        device = take_off_all(flight);
    if (device == VCUDA_DEVICES)
        return CUDA_SUCCESS;
    books_deny(&process->session.books, device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* A trim since the take-off may have come after the launch: then the next launch must reserve. */
static void note_launch(struct graph_flight *flight)
{
    for (unsigned device = 0; device < VCUDA_DEVICES; device++) {
        struct graph_pool *pool = pool_of(flight->process, device);
        if (flight->flying[device] == 0)
            continue;
        pthread_mutex_lock(&pool->mutex);
        pool->keeps |= flight->exec->need.keeps;
        flight->exec->launched[device] = flight->trims[device] + 1;
        pthread_mutex_unlock(&pool->mutex);
    }
    flight->exec->stream = flight->stream;
}

CUresult graph_flight_end(struct graph_flight *flight, CUresult result)
{
    if (flight->process == NULL)
        return result;
    if (result == CUDA_SUCCESS)
        note_launch(flight);
    land(flight);
    return result;
}
