#include "core/collective.h"
#include "core/work.h"

/* Where the group is, or else could be; SIM_COLLECTIVES for nowhere. */
static uint32_t place_of(const struct sim_state *state, uint64_t group)
{
    uint32_t unused = SIM_COLLECTIVES;
    for (uint32_t place = 0; place < SIM_COLLECTIVES; place++) {
        const struct sim_collective *collective = &state->collectives[place];
        if (collective->members != 0 && collective->group == group)
            return place;
        if (collective->members == 0 && unused == SIM_COLLECTIVES)
            unused = place;
    }
    return unused;
}

bool collective_has_place(const struct sim_state *state, const struct sim_task *task)
{
    return place_of(state, task->group) < SIM_COLLECTIVES;
}

uint32_t collective_join(struct sim_state *state, const struct sim_task *task)
{
    uint32_t place = place_of(state, task->group);
    struct sim_collective *collective = &state->collectives[place];
    if (collective->members == 0) {
        *collective = (struct sim_collective){.group = task->group, .members = task->members};
        state->collective_count++;
    }
    collective->queued++;
    return place;
}

bool collective_complete(const struct sim_state *state, uint32_t collective)
{
    return state->collectives[collective].begun >= state->collectives[collective].members;
}

void collective_begin(struct sim_state *state, uint32_t collective)
{
    state->collectives[collective].begun++;
    if (!collective_complete(state, collective))
        return;
    for (unsigned slot = 0; slot < state->process_limit; slot++)
        for (unsigned gpu = 0; gpu < state->machine.gpu_count; gpu++) {
            struct work_queue queue = work_queue(state, slot, gpu);
            work_release(&queue, collective);
        }
}

void collective_leave(struct sim_state *state, uint32_t collective)
{
    if (--state->collectives[collective].queued > 0)
        return;
    state->collectives[collective] = (struct sim_collective){0};
    state->collective_count--;
}
