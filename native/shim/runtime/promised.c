/* Was this process guaranteed limits, also where it cannot see them? */
#include "runtime/session.h"

#include "glibc.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Where the agent has the shims mounted in its containers. */
static const char *const mounts[] = {"/usr/local/nvidia/", "/usr/local/cuda/compat/"};

/* The file of this library, links resolved where it is still visible: a program may have changed
 * its root or its mounts since it was loaded. */
static bool own_file(char path[PATH_MAX])
{
    Dl_info library;
    if (dladdr((const void *)mounts, &library) == 0 || library.dli_fname == NULL)
        return false;
    if (realpath(library.dli_fname, path) == NULL) {
        strncpy(path, library.dli_fname, PATH_MAX - 1);
        path[PATH_MAX - 1] = 0;
    }
    return true;
}

static bool loaded_from_mount(void)
{
    char path[PATH_MAX];
    if (!own_file(path))
        return false;
    for (unsigned index = 0; index < sizeof mounts / sizeof *mounts; index++)
        if (strncmp(path, mounts[index], strlen(mounts[index])) == 0)
            return true;
    return false;
}

bool session_promised(void)
{
    const char *allocation = getenv("VCUDA_ALLOCATION");
    return (allocation != NULL && *allocation != 0) || loaded_from_mount();
}
