#include "core/device_nodes.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int node_path(char path[PATH_MAX], const char *name)
{
    const char *folder = getenv("GPUSIM_DEV");
    int size = snprintf(path, PATH_MAX, "%s/%s", folder != NULL ? folder : "/dev", name);
    return size < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int device_nodes_open(struct sim_state **out)
{
    char path[PATH_MAX];
    int result = node_path(path, "nvidiactl");
    return result != 0 ? result : sim_open(path, out);
}

static bool exists(unsigned minor)
{
    char name[24];
    char path[PATH_MAX];
    snprintf(name, sizeof name, "nvidia%u", minor);
    return node_path(path, name) == 0 && access(path, F_OK) == 0;
}

unsigned device_nodes_list(const struct sim_state *state, unsigned gpus[SIM_GPUS])
{
    unsigned count = 0;
    for (unsigned gpu = 0; gpu < state->machine.gpu_count; gpu++)
        if (exists(state->machine.gpus[gpu].minor))
            gpus[count++] = gpu;
    return count;
}
