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

uint64_t ledger_capacity(const struct sim_state *state, unsigned gpu)
{
    const struct sim_gpu *model = &state->machine.gpus[gpu];
    return model->memory_bytes - model->reserved_bytes;
}

static bool fits(const struct sim_state *state, unsigned gpu, uint64_t bytes)
{
    uint64_t total = ledger_capacity(state, gpu);
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

int ledger_resize(struct sim_state *state, struct sim_process *process, unsigned gpu, uint64_t from,
                  uint64_t to, uint64_t now)
{
    if (to > from && take(state, process, gpu, to - from, now) != 0)
        return -ENOMEM;
    if (to < from)
        process->bytes[gpu] -= from - to;
    process->allocations[gpu] += (from == 0) - (to == 0);
    return 0;
}

int ledger_take(struct sim_state *state, struct sim_process *process, unsigned gpu, uint64_t bytes,
                uint64_t now)
{
    return take(state, process, gpu, bytes, now);
}

void ledger_give(struct sim_process *process, unsigned gpu, uint64_t bytes)
{
    process->bytes[gpu] -= bytes;
}

/* Of the context that comes to, or goes from, `others`. */
static uint64_t context_bytes(const struct sim_state *state, unsigned gpu, uint32_t others)
{
    enum { SHARE_OF_FURTHER = 4 };
    uint64_t first = state->machine.gpus[gpu].context_bytes;
    return others == 0 ? first : first / SHARE_OF_FURTHER;
}

int ledger_open_context(struct sim_state *state, struct sim_process *process, unsigned gpu,
                        uint64_t now)
{
    uint64_t bytes = context_bytes(state, gpu, process->contexts[gpu]);
    int result = take(state, process, gpu, bytes, now);
    if (result == 0)
        process->contexts[gpu]++;
    return result;
}

void ledger_close_context(struct sim_state *state, struct sim_process *process, unsigned gpu)
{
    ledger_give(process, gpu, context_bytes(state, gpu, --process->contexts[gpu]));
}
