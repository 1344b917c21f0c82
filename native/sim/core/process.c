#include "core/process.h"
#include "core/life.h"
#include "core/pids.h"
#include "core/share.h"
#include "core/timeline.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* A hash of what /proc says of the mount of the root: of a container, which layer is its own. */
static uint64_t root_mount_hash(void)
{
    uint64_t hash = 0;
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen("/proc/self/mountinfo", "re");
    if (file == NULL)
        return 0;
    while (getline(&line, &size, file) > 0) {
        char point[4] = "";
        if (sscanf(line, "%*s %*s %*s %*s %3s", point) != 1 || strcmp(point, "/") != 0)
            continue;
        hash = 14695981039346656037U; /* FNV-1a */
        for (const char *at = line; *at != '\0'; at++)
            hash = (hash ^ (unsigned char)*at) * 1099511628211U;
    }
    free(line);
    fclose(file);
    return hash;
}

/* The never repeated number of this mount namespace; where the kernel has none, what its root is.
 */
static uint64_t mount_namespace_identity(void)
{
    const unsigned long ask = _IOR(0xb7, 5, uint64_t); /* NS_GET_MNTNS_ID */
    uint64_t identity;
    int file = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    bool told = file >= 0 && ioctl(file, ask, &identity) == 0;
    if (file >= 0)
        close(file);
    return told ? identity : root_mount_hash();
}

static uint64_t own_image(void)
{
    uint64_t image = 0;
    const void *random = (const void *)getauxval(AT_RANDOM);
    if (random != NULL)
        memcpy(&image, random, sizeof image);
    return image;
}

/* Of a process whose /proc cannot be read: one of another user, perhaps. A filter of system calls
 * may forbid one way to ask. */
static bool exists(int pid)
{
    return (kill(pid, 0) == 0 || errno != ESRCH) && (getpgid(pid) >= 0 || errno != ESRCH);
}

bool process_alive(const struct sim_state *state, struct sim_process *process)
{
    struct life life;
    char name[16];
    int pid = pids_in_proc() ? pids_here(state, process) : PID_UNSEEN;
    if (pid == PID_UNSEEN)
        return true; /* somebody of its own namespace will tell, or the host */
    if (pid == PID_GONE)
        return false;
    snprintf(name, sizeof name, "%d", pid);
    if (!life_read(name, &life))
        return exists(pid);
    bool other_program = life.stack != process->stack && life.stack != 0 && process->stack != 0;
    return life.state != 'Z' && life.state != 'X' && life.start_time == process->start_time &&
           !other_program;
}

void process_clear(struct sim_state *state, struct sim_process *process)
{
    timeline_forget(state, process);
    process->pid = 0;
    memset(process, 0, sizeof *process);
}

static bool tenant_in_use(const struct sim_state *state, unsigned tenant)
{
    for (unsigned slot = 0; slot < state->process_limit; slot++)
        if (state->processes[slot].pid != 0 && state->processes[slot].tenant == tenant)
            return true;
    return false;
}

/* A row for a new tenant: one that was closed, a fresh one, or at last any that nobody uses. */
static int new_tenant(struct sim_state *state)
{
    for (unsigned tenant = 0; tenant < state->tenant_limit; tenant++)
        if (state->tenants[tenant].mount_namespace == 0 && !tenant_in_use(state, tenant))
            return (int)tenant;
    if (state->tenant_limit < SIM_TENANTS)
        return (int)state->tenant_limit++;
    for (unsigned tenant = 0; tenant < SIM_TENANTS; tenant++)
        if (!tenant_in_use(state, tenant))
            return (int)tenant;
    return -ENOSPC;
}

static int find_tenant(struct sim_state *state, uint64_t mount_namespace, uint64_t identity)
{
    for (unsigned tenant = 0; tenant < state->tenant_limit; tenant++)
        if (state->tenants[tenant].mount_namespace == mount_namespace &&
            state->tenants[tenant].identity == identity)
            return (int)tenant;
    int tenant = new_tenant(state);
    if (tenant >= 0)
        state->tenants[tenant] = (struct sim_tenant){.mount_namespace = mount_namespace,
                                                     .identity = identity,
                                                     .serial = ++state->tenant_serial};
    return tenant;
}

/* Slots of this very process from before an exec. Another copy of the library in the same image
 * keeps its own slot. */
static void forget_earlier_image(struct sim_state *state, const struct sim_process *self,
                                 uint64_t now)
{
    for (unsigned slot = 0; slot < state->process_limit; slot++) {
        struct sim_process *process = &state->processes[slot];
        if (process->pid == self->pid && process->pid_namespace == self->pid_namespace &&
            process->image != self->image) {
            timeline_settle(state, now);
            share_leave(state, process);
            process_clear(state, process);
        }
    }
}

static struct sim_process *free_slot(struct sim_state *state)
{
    for (unsigned slot = 0; slot < state->process_limit; slot++)
        if (state->processes[slot].pid == 0)
            return &state->processes[slot];
    if (state->process_limit == SIM_PROCESSES)
        return NULL;
    return &state->processes[state->process_limit++];
}

int process_attach(struct sim_state *state, uint64_t now, struct sim_process **out)
{
    struct life life = {0};
    life_read("self", &life);
    struct sim_process self = {
        .pid = pids_own(),
        .start_time = life.start_time,
        .stack = life.stack,
        .pid_namespace = life_namespace("pid"),
        .image = own_image(),
    };
    if (self.pid == 0)
        return -ESRCH;
    sim_reap(state, now);
    forget_earlier_image(state, &self, now);
    int tenant = find_tenant(state, life_namespace("mnt"), mount_namespace_identity());
    if (tenant < 0)
        return tenant;
    self.tenant = (uint32_t)tenant;
    struct sim_process *slot = free_slot(state);
    if (slot == NULL)
        return -ENOSPC;
    *slot = self;
    *out = slot;
    return 0;
}

struct sim_usage *process_usage(struct sim_state *state, const struct sim_process *process,
                                unsigned gpu)
{
    return &state->tenants[process->tenant].gpus[gpu];
}
