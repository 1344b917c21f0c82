#include "core/account.h"
#include "core/ledger.h"
#include "core/period.h"
#include "core/pids.h"
#include "core/share.h"
#include "core/timeline.h"
#include <errno.h>

static void look(struct sim_state *state)
{
    uint64_t now = sim_lock(state);
    sim_reap(state, now);
    timeline_settle(state, now);
}

static struct sim_tenant tenant_account(const struct sim_state *state, unsigned tenant)
{
    struct sim_tenant account = state->tenants[tenant];
    for (unsigned gpu = 0; gpu < state->machine.gpu_count; gpu++)
        account.gpus[gpu].bytes = ledger_used_by_tenant(state, gpu, tenant);
    return account;
}

unsigned account_tenants(struct sim_state *state, struct sim_tenant *out, unsigned capacity)
{
    unsigned count = 0;
    look(state);
    for (unsigned tenant = 0; tenant < state->tenant_limit; tenant++) {
        if (state->tenants[tenant].mount_namespace == 0)
            continue;
        if (count < capacity)
            out[count] = tenant_account(state, tenant);
        count++;
    }
    sim_unlock(state);
    return count;
}

static bool occupies(const struct sim_process *process, unsigned gpu)
{
    return process->pid != 0 && (process->contexts[gpu] > 0 || process->bytes[gpu] > 0);
}

/* What others pay for and this process holds, too. */
static uint64_t shared_with(const struct sim_state *state, const struct sim_process *process,
                            unsigned gpu)
{
    uint64_t bytes = process->imported[gpu];
    for (unsigned index = 0; index < SIM_SHARES; index++)
        if (state->shares[index].gpu == gpu && share_guest(state, process, &state->shares[index]))
            bytes += state->shares[index].bytes;
    return bytes;
}

static uint64_t told_bytes(const struct sim_state *state, const struct sim_process *process,
                           unsigned gpu)
{
    const struct sim_driver *driver = &state->machine.driver;
    uint64_t hidden = driver->hides_managed ? process->managed[gpu] : 0;
    uint64_t imported = driver->counts_imports ? shared_with(state, process, gpu) : 0;
    return process->bytes[gpu] - hidden + imported;
}

static struct sim_occupant occupant(const struct sim_state *state, struct sim_process *process,
                                    unsigned gpu)
{
    int pid = pids_here(state, process);
    return (struct sim_occupant){
        .pid = pid > 0 ? pid : 0,
        .gpu = gpu,
        .mount_namespace = state->tenants[process->tenant].mount_namespace,
        .bytes = process->bytes[gpu],
        .told_bytes = told_bytes(state, process, gpu),
        .allocations = process->allocations[gpu],
        .busy_ns = process->busy_ns[gpu],
        .sm_ns = process->sm_ns[gpu],
        .contexts = process->contexts[gpu],
    };
}

unsigned account_occupants(struct sim_state *state, struct sim_occupant *out, unsigned capacity)
{
    unsigned count = 0;
    look(state);
    for (unsigned slot = 0; slot < state->process_limit; slot++) {
        for (unsigned gpu = 0; gpu < state->machine.gpu_count; gpu++) {
            if (!occupies(&state->processes[slot], gpu))
                continue;
            if (count < capacity)
                out[count] = occupant(state, &state->processes[slot], gpu);
            count++;
        }
    }
    sim_unlock(state);
    return count;
}

int account_retire(struct sim_state *state, uint64_t mount_namespace, struct sim_tenant *out)
{
    int result = -ENOENT;
    look(state);
    for (unsigned tenant = 0; tenant < state->tenant_limit; tenant++) {
        if (mount_namespace == 0 || state->tenants[tenant].mount_namespace != mount_namespace)
            continue;
        if (result != 0 || state->tenants[tenant].serial > out->serial)
            *out = tenant_account(state, tenant);
        state->tenants[tenant].mount_namespace = 0;
        result = 0;
    }
    sim_unlock(state);
    return result;
}

uint64_t account_used(struct sim_state *state, unsigned gpu)
{
    look(state);
    uint64_t used = ledger_used(state, gpu);
    sim_unlock(state);
    return used;
}

unsigned account_busy_percent(struct sim_state *state, unsigned gpu)
{
    look(state);
    unsigned percent = state->timelines[gpu].busy_percent;
    sim_unlock(state);
    return percent;
}

uint64_t account_lost_ns(struct sim_state *state, unsigned gpu)
{
    look(state);
    uint64_t lost = state->timelines[gpu].lost_ns;
    sim_unlock(state);
    return lost;
}

unsigned account_periods(struct sim_state *state, unsigned gpu, uint64_t after_ns,
                         struct sim_period out[SIM_RING])
{
    unsigned count = 0;
    look(state);
    const struct sim_timeline *timeline = &state->timelines[gpu];
    uint64_t oldest = timeline->sampled > SIM_RING ? timeline->sampled - SIM_RING : 0;
    for (uint64_t number = oldest; number < timeline->sampled; number++) {
        const struct sim_sample *sample = &timeline->ring[number % SIM_RING];
        if (sample->ended_ns > after_ns)
            out[count++] = (struct sim_period){sample->ended_ns, (sample->busy + 50) / 100};
    }
    sim_unlock(state);
    return count;
}

uint64_t account_gpu_busy_ns(struct sim_state *state, unsigned gpu)
{
    look(state);
    uint64_t busy = state->timelines[gpu].busy_ns;
    sim_unlock(state);
    return busy;
}

bool account_copies(struct sim_state *state, unsigned gpu, unsigned engine)
{
    look(state);
    const struct sim_timeline *timeline = &state->timelines[gpu];
    bool copies = timeline->engine_free_ns[engine] > timeline->clock_ns;
    sim_unlock(state);
    return copies;
}

int account_utilization(struct sim_state *state, unsigned gpu, uint64_t after_ns,
                        struct sim_utilization out[SIM_PROCESSES])
{
    look(state);
    bool told = state->machine.driver.samples != SIM_SAMPLES_NONE;
    unsigned count = period_utilization(state, gpu, after_ns, out);
    sim_unlock(state);
    return told ? (int)count : -ENOTSUP;
}

uint64_t account_busy_ns(const struct sim_process *process, unsigned gpu)
{
    return process->busy_ns[gpu];
}

unsigned account_sample(const struct sim_state *state, const struct sim_process *process,
                        unsigned gpu, uint64_t *ended_ns)
{
    return period_latest(state, process, gpu, ended_ns);
}

const struct sim_machine *account_machine(const struct sim_state *state)
{
    return &state->machine;
}
