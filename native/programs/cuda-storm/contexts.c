/* What the driver takes by itself, or for what is in a module: nobody says how much that is. */
#include "kinds.h"

#include <stdio.h>

enum { TEXT = 256, MOST_VARIABLE = 8 << 20 };

static bool context_there(void)
{
    return cuCtxCreate_v2 != NULL && cuCtxDestroy_v2 != NULL;
}

/* The thread's own stays current. */
static int context_take(struct block *block, uint64_t bytes)
{
    (void)bytes;
    void *made;
    int result = cuCtxCreate_v2(&block->object, 0, 0);
    return result != CUDA_SUCCESS ? result : cuCtxPopCurrent_v2(&made);
}

static int context_give(struct block *block)
{
    return cuCtxDestroy_v2(block->object);
}

static bool module_there(void)
{
    return cuModuleLoadData != NULL;
}

static int module_take(struct block *block, uint64_t bytes)
{
    char text[TEXT];
    snprintf(text, sizeof text,
             ".version 8.0\n.target sm_70\n.visible .global .align 8 .b8 variable[%llu];\n",
             (unsigned long long)bytes);
    return cuModuleLoadData(&block->object, text);
}

static int module_give(struct block *block)
{
    return cuModuleUnload(block->object);
}

const struct kind kind_context = {"context", context_there, context_take, context_give, 1, 1, 1,
                                  1,         true};
const struct kind kind_module = {
    "module", module_there, module_take, module_give, 8, MOST_VARIABLE, 1, 1, true};
