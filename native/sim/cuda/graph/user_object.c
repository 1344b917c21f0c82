#include "cuda/graph/user_object.h"
#include "cuda/graph/graph.h"
#include <limits.h>
#include <stdlib.h>

enum { NO_DESTRUCTOR_SYNC = 1, MOVE = 1 };

struct user_object {
    uint32_t kind;
    atomic_uint references;
    CUhostFn destroy;
    void *argument;
};

static bool is_object(const struct user_object *object)
{
    return object != NULL && object->kind == USER_OBJECT;
}

static bool is_count(unsigned count)
{
    return count > 0 && count <= INT_MAX;
}

/* Acquire and release: the destructor sees what every holder did before it let go. */
static void drop(struct user_object *object, unsigned count)
{
    if (atomic_fetch_sub_explicit(&object->references, count, memory_order_acq_rel) != count)
        return;
    object->kind = NO_OBJECT;
    object->destroy(object->argument);
    free(object);
}

/* Relaxed: who takes more references holds one already. */
static void take(struct user_object *object, unsigned count)
{
    atomic_fetch_add_explicit(&object->references, count, memory_order_relaxed);
}

static struct held_object *find(struct held_object *held, const struct user_object *object)
{
    while (held != NULL && held->object != object)
        held = held->next;
    return held;
}

/* Enter references in a holder's list; they are counted already. */
static int enter(struct held_object **held, struct user_object *object, unsigned count)
{
    struct held_object *found = find(*held, object);
    if (found == NULL) {
        found = calloc(1, sizeof *found);
        if (found == NULL)
            return -1;
        *found = (struct held_object){.next = *held, .object = object};
        *held = found;
    }
    found->count += count;
    return 0;
}

int held_copy(const struct held_object *held, struct held_object **out)
{
    for (; held != NULL; held = held->next) {
        if (enter(out, held->object, held->count) != 0)
            return -1;
        take(held->object, held->count);
    }
    return 0;
}

void held_release(struct held_object **held)
{
    while (*held != NULL) {
        struct held_object *gone = *held;
        *held = gone->next;
        drop(gone->object, gone->count);
        free(gone);
    }
}

API CUresult cuUserObjectCreate(CUuserObject *out, void *argument, CUhostFn destroy,
                                unsigned references, unsigned flags)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || destroy == NULL || !is_count(references) || flags != NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    struct user_object *object = calloc(1, sizeof *object);
    if (object == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    object->kind = USER_OBJECT;
    object->destroy = destroy;
    object->argument = argument;
    atomic_init(&object->references, references);
    *out = object;
    return CUDA_SUCCESS;
}

API CUresult cuUserObjectRetain(CUuserObject object, unsigned count)
{
    if (!is_object(object) || !is_count(count))
        return CUDA_ERROR_INVALID_VALUE;
    take(object, count);
    return CUDA_SUCCESS;
}

API CUresult cuUserObjectRelease(CUuserObject object, unsigned count)
{
    if (!is_object(object) || !is_count(count) || count > object->references)
        return CUDA_ERROR_INVALID_VALUE;
    drop(object, count);
    return CUDA_SUCCESS;
}

/* MOVE: the caller's own references become the graph's. */
API CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count,
                                     unsigned flags)
{
    if (!is_graph(graph) || !is_object(object) || !is_count(count) || flags > MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    if (enter(&graph->held, object, count) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (flags != MOVE)
        take(object, count);
    return CUDA_SUCCESS;
}

/* No more than the graph holds. */
API CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count)
{
    if (!is_graph(graph) || !is_object(object) || !is_count(count))
        return CUDA_ERROR_INVALID_VALUE;
    struct held_object **place = &graph->held;
    while (*place != NULL && (*place)->object != object)
        place = &(*place)->next;
    if (*place == NULL || (*place)->count < count)
        return CUDA_ERROR_INVALID_VALUE;
    struct held_object *found = *place;
    found->count -= count;
    if (found->count == 0) {
        *place = found->next;
        free(found);
    }
    drop(object, count);
    return CUDA_SUCCESS;
}
