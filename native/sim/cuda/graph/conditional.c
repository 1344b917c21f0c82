#include "cuda/graph/conditional.h"
#include <stdlib.h>

enum { ASSIGN_DEFAULT = 1 };
enum { IF, WHILE, SWITCH };

/* A handle; driver->mutex guards the list. */
struct condition {
    struct condition *next;
    uint64_t number;
    uint64_t graph;
    unsigned value; /* at launch */
};

API CUresult cuGraphConditionalHandleCreate(uint64_t *out, CUgraph graph, CUcontext context,
                                            unsigned value, unsigned flags)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    (void)context;
    if (out == NULL || !is_graph(graph) || flags > ASSIGN_DEFAULT)
        return CUDA_ERROR_INVALID_VALUE;
    struct condition *condition = malloc(sizeof *condition);
    if (condition == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&driver->mutex);
    *condition = (struct condition){.next = driver->conditions,
                                    .number = driver_number(driver),
                                    .graph = graph->number,
                                    .value = flags == ASSIGN_DEFAULT ? value : 0};
    driver->conditions = condition;
    *out = condition->number;
    pthread_mutex_unlock(&driver->mutex);
    return CUDA_SUCCESS;
}

void conditional_forget(struct driver *driver, uint64_t graph)
{
    pthread_mutex_lock(&driver->mutex);
    for (struct condition **place = &driver->conditions; *place != NULL;) {
        struct condition *condition = *place;
        if (condition->graph == graph) {
            *place = condition->next;
            free(condition);
        } else {
            place = &condition->next;
        }
    }
    pthread_mutex_unlock(&driver->mutex);
}

static bool look_up(struct driver *driver, uint64_t handle, unsigned *value)
{
    pthread_mutex_lock(&driver->mutex);
    const struct condition *condition = driver->conditions;
    while (condition != NULL && condition->number != handle)
        condition = condition->next;
    if (condition != NULL)
        *value = condition->value;
    pthread_mutex_unlock(&driver->mutex);
    return condition != NULL;
}

static bool size_valid(int type, unsigned size)
{
    if (type == IF)
        return size == 1 || size == 2;
    return type == WHILE ? size == 1 : type == SWITCH && size > 0;
}

/* Room for the bodies, which are NULL. */
static CUresult make_room(int type, unsigned size, unsigned value, struct conditional_work *out)
{
    *out = (struct conditional_work){.type = type, .value = value};
    out->bodies = calloc(size, sizeof *out->bodies);
    if (out->bodies == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    out->size = size;
    return CUDA_SUCCESS;
}

static CUresult make_bodies(struct driver *driver, struct conditional_work *work)
{
    for (unsigned i = 0; i < work->size; i++)
        if ((work->bodies[i] = graph_new(driver)) == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

CUresult conditional_add(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs, size_t count,
                         struct conditional_params *params)
{
    struct driver *driver;
    unsigned value;
    CUresult result = graph_add_check(out, graph, needs, count, &driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (!size_valid(params->type, params->size) || !look_up(driver, params->handle, &value))
        return CUDA_ERROR_INVALID_VALUE;
    struct node node = {.type = NODE_CONDITIONAL};
    result = make_room(params->type, params->size, value, &node.conditional);
    if (result == CUDA_SUCCESS)
        result = make_bodies(driver, &node.conditional);
    if (result != CUDA_SUCCESS) {
        conditional_release(driver, &node.conditional);
        return result;
    }
    result = graph_add(driver, graph, &node, needs, count, out);
    if (result == CUDA_SUCCESS)
        params->bodies = (*out)->conditional.bodies;
    return result;
}

CUresult conditional_copy(struct driver *driver, const struct conditional_work *from,
                          struct conditional_work *out)
{
    CUresult result = make_room(from->type, from->size, from->value, out);
    for (unsigned i = 0; i < from->size && result == CUDA_SUCCESS; i++)
        if ((out->bodies[i] = graph_copy(driver, from->bodies[i])) == NULL)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        conditional_release(driver, out);
    return result;
}

void conditional_release(struct driver *driver, struct conditional_work *work)
{
    for (unsigned i = 0; i < work->size; i++)
        graph_release(driver, work->bodies[i]);
    free(work->bodies);
    *work = (struct conditional_work){0};
}

const struct graph *conditional_chosen(const struct conditional_work *work)
{
    unsigned index = work->type == SWITCH ? work->value : work->value == 0;
    return index < work->size ? work->bodies[index] : NULL;
}

static bool body_valid(const struct graph *body)
{
    static const bool allowed[NODE_TYPES] = {
        [NODE_KERNEL] = true, [NODE_COPY] = true,  [NODE_FILL] = true,
        [NODE_CHILD] = true,  [NODE_EMPTY] = true, [NODE_CONDITIONAL] = true,
    };
    for (size_t i = 0; i < body->nodes.count; i++) {
        const struct node *node = body->nodes.items[i];
        if (!allowed[node->type] || (node->type == NODE_CHILD && !body_valid(node->child)))
            return false;
    }
    return conditional_bodies_valid(body);
}

bool conditional_bodies_valid(const struct graph *graph)
{
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        if (node->type == NODE_CHILD && !conditional_bodies_valid(node->child))
            return false;
        for (unsigned j = 0; node->type == NODE_CONDITIONAL && j < node->conditional.size; j++)
            if (!body_valid(node->conditional.bodies[j]))
                return false;
    }
    return true;
}
