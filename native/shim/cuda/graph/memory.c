#include "cuda/graph/memory.h"

#include "cuda/memory/overhead.h"
#include "cuda/memory/reclaim.h"
#include "cuda/memory/streams.h"
#include "cuda/pool/pool.h"

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

bool graph_memory_held(struct process *process, unsigned device)
{
    struct graph_pool *pool = pool_of(process, device);
    pthread_mutex_lock(&pool->mutex);
    bool held = pool->held > 0;
    pthread_mutex_unlock(&pool->mutex);
    return held;
}

void graph_memory_settle_all(struct process *process)
{
    for (unsigned device = 0; device < VCUDA_DEVICES; device++)
        if (graph_memory_held(process, device))
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
    CUresult result = REAL(cuDeviceGraphMemTrim)(ordinal);
    settle(process, device, 0);
    pthread_mutex_lock(&pool->mutex);
    for (int at = 0; at < GRAPH_STREAMS && pool->known == 0 && pool->flying == 0; at++)
        pool->streams[at].bytes = 0; /* none is running */
    pthread_mutex_unlock(&pool->mutex);
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
    if (!graph_memory_held(process, device))
        return false;
    trim(process, device, ordinal_of(process, device));
    return true;
}

static uint64_t need_on(const struct graph_flight *flight, const struct graph_pool *pool,
                        unsigned device)
{
    return pool->fine ? flight->need->fine[device] : flight->need->coarse[device];
}

/* The place of a stream, or a free one, or the first. The pool's mutex is held. */
static struct graph_stream *place_of(struct graph_pool *pool, uint64_t stream)
{
    struct graph_stream *found = &pool->streams[0];
    for (int at = GRAPH_STREAMS - 1; at > 0; at--) {
        struct graph_stream *place = &pool->streams[at];
        if (place->stream == stream)
            return place;
        if (place->bytes == 0 && place->flying == 0)
            found = place;
    }
    return found;
}

/* What graphs may need at once, in all streams. */
static uint64_t running(const struct graph_pool *pool)
{
    uint64_t sum = 0;
    for (int at = 0; at < GRAPH_STREAMS; at++)
        sum += pool->streams[at].bytes;
    return sum;
}

/* The graph is in flight with what there may be to add reserved: what a trim that comes between
 * gives back stays in the books until it has landed. */
static int fly(struct graph_flight *flight, unsigned device)
{
    struct process *process = flight->process;
    struct graph_pool *pool = pool_of(process, device);
    pthread_mutex_lock(&pool->mutex);
    uint64_t need = need_on(flight, pool, device);
    struct graph_stream *place = place_of(pool, flight->stream);
    uint64_t before = place->bytes;
    uint64_t now = place == pool->streams ? before + need : need > before ? need : before;
    uint64_t most = running(pool) - before + now;
    uint64_t there = pool->keeps ? 0 : pool->held; /* or all of it may be what graphs left */
    uint64_t more = most > there ? most - there : 0;
    int error = more == 0 ? 0
                          : books_reserve(&process->session.books, device, more,
                                          process_memory_limit(process, device));
    if (error == 0) {
        if (place != pool->streams)
            place->stream = flight->stream;
        place->bytes = now;
        place->launches++;
        place->flying++;
        flight->flying[device] = need;
        flight->places[device] = place;
        pool->keeps |= flight->need->keeps;
        pool->flying += need;
        pool->held += more;
    }
    pthread_mutex_unlock(&pool->mutex);
    return error;
}

uint64_t graph_launches(struct process *process, unsigned device, uint64_t stream)
{
    struct graph_pool *pool = pool_of(process, device);
    pthread_mutex_lock(&pool->mutex);
    const struct graph_stream *place = place_of(pool, stream);
    uint64_t launches = place->flying == 0 ? place->launches : UINT64_MAX;
    pthread_mutex_unlock(&pool->mutex);
    return launches;
}

void graph_stream_done(struct process *process, unsigned device, uint64_t stream, uint64_t launches)
{
    struct graph_pool *pool = pool_of(process, device);
    pthread_mutex_lock(&pool->mutex);
    struct graph_stream *place = place_of(pool, stream);
    if (place->stream == stream && place->flying == 0 && place->launches == launches)
        place->bytes = 0;
    pthread_mutex_unlock(&pool->mutex);
}

void graph_stream_left(struct process *process, unsigned device, uint64_t stream)
{
    struct graph_pool *pool = pool_of(process, device);
    pthread_mutex_lock(&pool->mutex);
    for (int at = 1; at < GRAPH_STREAMS; at++)
        if (stream == GAP_ANY || pool->streams[at].stream == stream) {
            pool->streams[0].bytes += pool->streams[at].bytes;
            pool->streams[at].bytes = 0;
        }
    pthread_mutex_unlock(&pool->mutex);
}

/* anew: nothing is left to wait for, so that what is held in reserve goes. */
static bool take_off(struct graph_flight *flight, unsigned device, bool anew)
{
    struct process *process = flight->process;
    catch_up(process, device);
    if (fly(flight, device) == 0)
        return true;
    return anew && reclaim(process, device) && fly(flight, device) == 0;
}

static void land_on(struct graph_flight *flight, unsigned device)
{
    struct graph_pool *pool = pool_of(flight->process, device);
    pthread_mutex_lock(&pool->mutex);
    flight->places[device]->flying--;
    pthread_mutex_unlock(&pool->mutex);
    settle(flight->process, device, flight->flying[device]);
}

static void land(struct graph_flight *flight)
{
    for (unsigned device = 0; device < VCUDA_DEVICES; device++)
        if (flight->flying[device] > 0)
            land_on(flight, device);
    process_move_end(flight->process);
}

/* Take off on all devices that the graph needs. Returns the one that has no room; VCUDA_DEVICES if
 * none. */
static unsigned take_off_all(struct graph_flight *flight, bool anew)
{
    unsigned device = 0;
    process_move_begin(flight->process);
    while (device < VCUDA_DEVICES &&
           (flight->need->fine[device] == 0 || take_off(flight, device, anew)))
        device++;
    if (device == VCUDA_DEVICES)
        return device;
    land(flight);
    *flight = (struct graph_flight){
        .process = flight->process, .need = flight->need, .stream = flight->stream};
    return device;
}

/* Before a refusal it is measured what may be less than the books say. */
CUresult graph_flight_begin(struct graph_flight *flight, struct process *process,
                            const struct graph_need *need, CUstream stream)
{
    *flight =
        (struct graph_flight){.process = process, .need = need, .stream = pool_stream_key(stream)};
    if (need->foreign) /* as if the device had no memory */
        return CUDA_ERROR_OUT_OF_MEMORY;
    streams_note(process, flight->stream);
    unsigned device = take_off_all(flight, false);
    struct retry retry = {0};
    while (device < VCUDA_DEVICES &&
           overhead_reconsider(process, device, need->fine[device], &retry))
        device = take_off_all(flight, true);
    if (device == VCUDA_DEVICES)
        return CUDA_SUCCESS;
    books_deny(&process->session.books, device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult graph_flight_end(struct graph_flight *flight, CUresult result)
{
    if (flight->process != NULL)
        land(flight);
    return result;
}
