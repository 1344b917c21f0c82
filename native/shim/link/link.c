#include "link/link.h"

#include "glibc.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

/* Loaded already, as a dependency of this library, in whatever namespace it is in. */
static void *shim(void)
{
    void *handle = dlopen(VCUDA_SHIM_SONAME, RTLD_LAZY | RTLD_NOLOAD);
    return handle != NULL ? handle : dlopen(VCUDA_SHIM_SONAME, RTLD_LAZY);
}

void *link_resolve(unsigned index)
{
    void *library = shim();
    void *target = library == NULL ? NULL : dlsym(library, link_names[index]);
    if (target == NULL)
        target = (void *)link_absent;
    atomic_store_explicit(&link_targets[index], target, memory_order_relaxed);
    return target;
}
