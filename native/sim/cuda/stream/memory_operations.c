/* Memory operations that wait: what they wait for, and who opens their gates. */
#include "core/timeline.h"
#include "cuda/memory/addresses.h"
#include "cuda/stream/memory.h"
#include <stdlib.h>
#include <string.h>

enum comparison { AT_LEAST, EQUAL, ANY_BIT, ANY_CLEAR, CONDITIONS };
enum { FLUSH = 1 << 30, MOST_OPERATIONS = 255 };

static size_t width(const struct memory_operation *operation)
{
    return operation->kind == WAIT_64 || operation->kind == WRITE_64 ? 8 : 4;
}

/* Where it is, to be read or written; NULL when it is freed by now. driver->mutex is held. */
static void *place(struct driver *driver, const struct pending *pending)
{
    const struct memory_operation *operation = &pending->operation;
    if (pending->on_device &&
        (addresses_find(&driver->memory, operation->address) == NULL ||
         addresses_access(&driver->memory, operation->address, width(operation)) != 0))
        return NULL;
    return (void *)(uintptr_t)operation->address;
}

static bool holds_32(uint32_t found, uint32_t value, unsigned condition)
{
    switch (condition) {
    case AT_LEAST:
        return (int32_t)(found - value) >= 0;
    case EQUAL:
        return found == value;
    case ANY_BIT:
        return (found & value) != 0;
    default:
        return (uint32_t)~(found | value) != 0;
    }
}

static bool holds_64(uint64_t found, uint64_t value, unsigned condition)
{
    switch (condition) {
    case AT_LEAST:
        return (int64_t)(found - value) >= 0;
    case EQUAL:
        return found == value;
    case ANY_BIT:
        return (found & value) != 0;
    default:
        return ~(found | value) != 0;
    }
}

/* Of memory that is freed by now: so that nothing waits for ever. */
static bool holds(struct driver *driver, const struct pending *pending)
{
    const struct memory_operation *operation = &pending->operation;
    const void *start = place(driver, pending);
    if (start == NULL)
        return true;
    if (operation->kind == WAIT_64)
        return holds_64(*(const volatile uint64_t *)start, operation->value, operation->flags);
    return holds_32(*(const volatile uint32_t *)start, (uint32_t)operation->value,
                    operation->flags);
}

static void write_value(struct driver *driver, const struct pending *pending)
{
    void *start = place(driver, pending);
    if (start != NULL)
        memcpy(start, &pending->operation.value, width(&pending->operation));
}

static void open_gate(struct driver *driver, const struct pending *pending)
{
    unsigned gpu = driver->gpus[pending->device];
    uint64_t now = sim_lock(driver->state);
    timeline_advance(driver->state, gpu, now);
    timeline_open(driver->state, driver->process, gpu, pending->position);
    sim_unlock(driver->state);
}

/* One that nothing in its lane holds up: is it done now? driver->mutex is held. */
static bool finish(struct driver *driver, const struct pending *pending, bool abandoned)
{
    if (memory_is_wait(&pending->operation)) {
        if (!abandoned && !holds(driver, pending))
            return false;
        open_gate(driver, pending);
    } else {
        write_value(driver, pending);
    }
    return true;
}

/* Once through what is pending on a device, in its order; true if anything was finished. */
static bool pass(struct driver *driver, int device, bool abandoned)
{
    uint64_t held = 0; /* lanes */
    bool any = false;
    for (struct pending **at = &driver->pending; *at != NULL;) {
        struct pending *pending = *at;
        bool due = pending->device == device && (held >> pending->lane & 1) == 0;
        if (due && finish(driver, pending, abandoned)) {
            *at = pending->next;
            free(pending);
            atomic_fetch_sub_explicit(&driver->pending_count, 1, memory_order_relaxed);
            any = true;
            continue;
        }
        if (pending->device == device)
            held |= UINT64_C(1) << pending->lane;
        at = &pending->next;
    }
    return any;
}

/* Relaxed: who has to see an operation is told of it by its thread anyhow. */
static void settle(struct driver *driver, int device, bool abandoned)
{
    if (atomic_load_explicit(&driver->pending_count, memory_order_relaxed) == 0)
        return;
    pthread_mutex_lock(&driver->mutex);
    while (pass(driver, device, abandoned))
        ; /* a value that was written may let another stream go on */
    pthread_mutex_unlock(&driver->mutex);
}

void stream_memory_look(struct driver *driver, int device)
{
    settle(driver, device, false);
}

void stream_memory_abandon(struct driver *driver, int device)
{
    settle(driver, device, true);
}

static CUresult check(struct driver *driver, const struct memory_operation *operation)
{
    if (operation->kind == FLUSH_REMOTE_WRITES ||
        (memory_is_wait(operation) && (operation->flags & FLUSH) != 0))
        return CUDA_ERROR_NOT_SUPPORTED; /* as attributes.c says */
    if (operation->kind == BARRIER)
        return operation->barrier <= 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (!memory_is_wait(operation) && !memory_is_write(operation))
        return CUDA_ERROR_INVALID_VALUE;
    const struct allocation *found = addresses_find(&driver->memory, operation->address);
    bool managed = found != NULL && found->managed;
    unsigned most = memory_is_wait(operation) ? CONDITIONS - 1 : 0;
    return operation->address != 0 && operation->address % width(operation) == 0 && !managed &&
                   operation->flags <= most
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult stream_memory_check(struct driver *driver, const struct memory_batch *batch)
{
    CUresult result = CUDA_SUCCESS;
    if (batch->flags != 0 || batch->count > MOST_OPERATIONS ||
        (batch->count > 0 && batch->operations == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    for (unsigned i = 0; i < batch->count && result == CUDA_SUCCESS; i++)
        result = check(driver, &batch->operations[i]);
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

CUresult memory_operation_append(struct driver *driver, const struct pending *wanted)
{
    struct pending *made = malloc(sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *made = *wanted;
    pthread_mutex_lock(&driver->mutex);
    struct pending **end = &driver->pending;
    while (*end != NULL)
        end = &(*end)->next;
    *end = made;
    atomic_fetch_add_explicit(&driver->pending_count, 1, memory_order_relaxed);
    pthread_mutex_unlock(&driver->mutex);
    return CUDA_SUCCESS;
}

bool memory_operation_done_now(struct driver *driver, struct pending *wanted)
{
    bool held = false;
    pthread_mutex_lock(&driver->mutex);
    wanted->on_device = addresses_find(&driver->memory, wanted->operation.address) != NULL;
    for (const struct pending *before = driver->pending; before != NULL; before = before->next)
        held |= before->device == wanted->device && before->lane == wanted->lane;
    bool done = !held && (memory_is_write(&wanted->operation) || holds(driver, wanted));
    if (done && memory_is_write(&wanted->operation))
        write_value(driver, wanted);
    pthread_mutex_unlock(&driver->mutex);
    return done;
}

CUresult stream_memory_copy(const struct memory_batch *from, struct memory_batch *out)
{
    *out = *from;
    out->operations = calloc(from->count + 1U, sizeof *out->operations);
    if (out->operations == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (from->count > 0)
        memcpy(out->operations, from->operations, from->count * sizeof *out->operations);
    return CUDA_SUCCESS;
}
