#include "core/ledger.h"
#include "core/process.h"
#include <errno.h>

uint64_t ledger_used(const struct sim_state *state, unsigned gpu)
{
    uint64_t sum = 0;
    for (unsigned slot = 0; slot < state->process_limit; slot++)
        sum += state->processes[slot].bytes[gpu];
    return sum;
}

uint64_t ledger_used_by_tenant(const struct sim_state *state, unsigned gpu, uint32_t tenant)
{
    uint64_t sum = 0;
    for (unsigned slot = 0; slot < state->process_limit; slot++)
        if (state->processes[slot].pid != 0 && state->processes[slot].tenant == tenant)
            sum += state->processes[slot].bytes[gpu];
    return sum;
}

static bool fits(const struct sim_state *state, unsigned gpu, uint64_t bytes)
{
    uint64_t total = state->machine.gpus[gpu].memory_bytes;
    uint64_t used = ledger_used(state, gpu);
    return used <= total && bytes <= total - used;
}

/* What a dead process held is no part of a new peak. */
static void note_peak(struct sim_state *state, const struct sim_process *process, unsigned gpu,
                      uint64_t now)
{
    struct sim_usage *usage = process_usage(state, process, gpu);
    if (ledger_used_by_tenant(state, gpu, process->tenant) <= usage->peak_bytes)
        return;
    sim_reap(state, now);
    uint64_t bytes = ledger_used_by_tenant(state, gpu, process->tenant);
    if (bytes > usage->peak_bytes)
        usage->peak_bytes = bytes;
}

static int take(struct sim_state *state, struct sim_process *process, unsigned gpu, uint64_t bytes,
                uint64_t now)
{
    if (!fits(state, gpu, bytes))
        sim_reap(state, now); /* perhaps a dead process still holds what is missing */
    if (!fits(state, gpu, bytes)) {
        process_usage(state, process, gpu)->refused++;
        return -ENOMEM;
    }
    process->bytes[gpu] += bytes;
    note_peak(state, process, gpu, now);
    return 0;
}

int ledger_charge(struct sim_state *state, struct sim_process *process, unsigned gpu,
                  uint64_t bytes, uint64_t now)
{
    int result = take(state, process, gpu, bytes, now);
    if (result == 0)
        process->allocations[gpu]++;
    return result;
}

void ledger_release(struct sim_process *process, unsigned gpu, uint64_t bytes)
{
    process->bytes[gpu] -= bytes;
    process->allocations[gpu]--;
}

void ledger_inherit(struct sim_process *process, unsigned gpu, uint64_t bytes)
{
    process->bytes[gpu] += bytes;
    process->allocations[gpu]++;
}

int ledger_open_context(struct sim_state *state, struct sim_process *process, unsigned gpu,
                        uint64_t now)
{
    if (process->contexts[gpu] == 0) {
        int result = take(state, process, gpu, state->machine.gpus[gpu].context_bytes, now);
        if (result != 0)
            return result;
    }
    process->contexts[gpu]++;
    return 0;
}

void ledger_close_context(struct sim_state *state, struct sim_process *process, unsigned gpu)
{
    if (--process->contexts[gpu] == 0)
        process->bytes[gpu] -= state->machine.gpus[gpu].context_bytes;
}
