#include "cuda/hook.h"

#include "cuda_hooks.h"

#include <string.h>

static const void *entry_of(const struct hook *hook)
{
    return atomic_load_explicit(&hook->entry, memory_order_relaxed);
}

const struct hook *hook_at(const void *entry)
{
    for (int index = 0; entry != NULL && index < HOOKS; index++)
        if (entry_of(&hooks[index]) == entry)
            return &hooks[index];
    return NULL;
}

const struct hook *hook_named(const char *family, int version, bool per_thread)
{
    const struct hook *newest = NULL;
    int best = 0;
    for (int index = 0; index < HOOKS; index++) {
        const struct hook *hook = &hooks[index];
        int since = per_thread ? hook->since_per_thread : hook->since;
        if (since <= best || since > version || strcmp(hook->family, family) != 0)
            continue;
        if (entry_of(hook) == NULL) /* 12.4 asked for cuCtxCreate of 12.5 answers with _v3 */
            continue;
        newest = hook;
        best = since;
    }
    return newest;
}

const struct hook *hook_family(const char *family)
{
    for (int index = 0; index < HOOKS; index++)
        if (strcmp(hooks[index].family, family) == 0)
            return &hooks[index];
    return NULL;
}
