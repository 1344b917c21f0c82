/* The stack of contexts of each thread. */
#include "cuda/context/context.h"

enum { STACK_DEPTH = 64 };

/* owner: the process that pushed; a forked child starts with an empty stack. */
static _Thread_local struct {
    const struct driver *driver;
    int owner;
    unsigned depth;
    struct context *contexts[STACK_DEPTH];
} stack;

static void check_owner(const struct driver *driver)
{
    if (stack.driver == driver && stack.owner == driver->process->pid)
        return;
    stack.driver = driver;
    stack.owner = driver->process->pid;
    stack.depth = 0;
}

struct context *context_set(const struct driver *driver)
{
    check_owner(driver);
    return stack.depth > 0 ? stack.contexts[stack.depth - 1] : NULL;
}

struct context *context_base(struct driver *driver, struct context *context)
{
    return context->green != NULL ? &driver->primaries[context->device] : context;
}

struct context *context_current(struct driver *driver)
{
    struct context *context = context_set(driver);
    return context != NULL ? context_base(driver, context) : NULL;
}

void context_leave(const struct driver *driver, const struct context *context)
{
    if (context != NULL && context_set(driver) == context)
        stack.depth--;
}

CUresult context_push(const struct driver *driver, struct context *context)
{
    check_owner(driver);
    if (stack.depth == STACK_DEPTH)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack.contexts[stack.depth++] = context;
    return CUDA_SUCCESS;
}
