#include "core/share.h"
#include "core/ledger.h"
#include <string.h>

static struct sim_share *find(struct sim_state *state, uint64_t identity)
{
    for (unsigned index = 0; index < SIM_SHARES; index++)
        if (state->shares[index].identity == identity)
            return &state->shares[index];
    return NULL;
}

static uint32_t slot_of(const struct sim_state *state, const struct sim_process *process)
{
    return (uint32_t)(process - state->processes);
}

static bool holds(const struct sim_share *share, uint32_t slot)
{
    return (share->holders[slot / 8] >> slot % 8 & 1) != 0;
}

static void hold(struct sim_share *share, uint32_t slot)
{
    share->holders[slot / 8] |= (uint8_t)(1U << slot % 8);
}

uint64_t share_begin(struct sim_state *state, const struct sim_process *process, unsigned gpu,
                     uint64_t bytes)
{
    struct sim_share *share = find(state, 0);
    if (share == NULL)
        return 0;
    *share = (struct sim_share){.identity = ++state->share_serial,
                                .bytes = bytes,
                                .gpu = gpu,
                                .payer = slot_of(state, process)};
    hold(share, share->payer);
    return share->identity;
}

uint64_t share_join(struct sim_state *state, struct sim_process *process, uint64_t identity,
                    unsigned gpu, uint64_t bytes, uint64_t now)
{
    struct sim_share *share = find(state, identity);
    if (share != NULL) {
        hold(share, slot_of(state, process));
        return identity;
    }
    if (find(state, 0) == NULL || ledger_charge(state, process, gpu, bytes, now) != 0)
        return 0;
    return share_begin(state, process, gpu, bytes);
}

bool share_guest(const struct sim_state *state, const struct sim_process *process,
                 const struct sim_share *share)
{
    uint32_t slot = slot_of(state, process);
    return share->identity != 0 && share->payer != slot && holds(share, slot);
}

/* The first slot that still holds it; SIM_PROCESSES for none. */
static uint32_t heir(const struct sim_share *share)
{
    uint32_t slot = 0;
    while (slot < SIM_PROCESSES && !holds(share, slot))
        slot++;
    return slot;
}

static void let_go(struct sim_state *state, struct sim_share *share, uint32_t slot)
{
    share->holders[slot / 8] &= (uint8_t)~(1U << slot % 8);
    if (share->payer != slot)
        return;
    ledger_release(&state->processes[slot], share->gpu, share->bytes);
    share->payer = heir(share);
    if (share->payer == SIM_PROCESSES)
        *share = (struct sim_share){0};
    else
        ledger_inherit(&state->processes[share->payer], share->gpu, share->bytes);
}

void share_end(struct sim_state *state, struct sim_process *process, uint64_t identity)
{
    struct sim_share *share = find(state, identity);
    if (share != NULL)
        let_go(state, share, slot_of(state, process));
}

void share_leave(struct sim_state *state, struct sim_process *process)
{
    uint32_t slot = slot_of(state, process);
    for (unsigned index = 0; index < SIM_SHARES; index++)
        if (state->shares[index].identity != 0 && holds(&state->shares[index], slot))
            let_go(state, &state->shares[index], slot);
}
