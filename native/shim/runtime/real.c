#include "runtime/real.h"

#include "glibc.h"

#include <dlfcn.h>
#include <link.h>
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

bool real_is_symbolic(void)
{
    struct link_map *library = NULL;
    void *handle = real_library();
    if (handle == NULL || dlinfo(handle, RTLD_DI_LINKMAP, &library) != 0)
        return false;
    for (const ElfW(Dyn) *entry = library->l_ld; entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_SYMBOLIC ||
            (entry->d_tag == DT_FLAGS && (entry->d_un.d_val & DF_SYMBOLIC) != 0))
            return true;
    return false;
}

void *real_symbol(const char *name)
{
    void *library = real_library();
    return library == NULL ? NULL : dlsym(library, name);
}
