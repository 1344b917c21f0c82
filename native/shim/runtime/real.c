#include "runtime/real.h"

#include "runtime/glibc.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

/* Loaded already, as a dependency of the shim, in whatever namespace the shim is in. */
static void *real_library(void)
{
    static void *_Atomic library;
    void *handle = atomic_load(&library);
    if (handle == NULL) {
        handle = dlopen(VCUDA_REAL_SONAME, RTLD_LAZY | RTLD_NOLOAD);
        if (handle == NULL)
            handle = dlopen(VCUDA_REAL_SONAME, RTLD_LAZY);
        atomic_store(&library, handle);
    }
    return handle;
}

void *real_symbol(const char *name)
{
    void *library = real_library();
    return library == NULL ? NULL : dlsym(library, name);
}
