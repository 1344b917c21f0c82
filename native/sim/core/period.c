#include "core/period.h"

static uint32_t percent(uint64_t busy_ns)
{
    uint64_t rounded = (busy_ns * 100 + SAMPLE_PERIOD_NS / 2) / SAMPLE_PERIOD_NS;
    return rounded < 100 ? (uint32_t)rounded : 100;
}

void period_publish(struct sim_state *state, unsigned gpu)
{
    struct sim_timeline *timeline = &state->timelines[gpu];
    timeline->busy_percent = percent(timeline->period_busy_ns);
    timeline->period_busy_ns = 0;
    timeline->period_start_ns += SAMPLE_PERIOD_NS;
    for (unsigned slot = 0; slot < state->process_limit; slot++) {
        struct sim_queue *queue = &state->processes[slot].queues[gpu];
        queue->history = queue->history << 8 | percent(queue->period_busy_ns);
        queue->period_busy_ns = 0;
    }
}

/* More idle periods than are remembered need no counting one by one. */
void period_pass_idle(struct sim_state *state, unsigned gpu, uint64_t now)
{
    struct sim_timeline *timeline = &state->timelines[gpu];
    for (int closed = 0; closed <= SIM_SAMPLES && now >= period_end(timeline); closed++)
        period_publish(state, gpu);
    uint64_t whole = (now - timeline->period_start_ns) / SAMPLE_PERIOD_NS;
    timeline->period_start_ns += whole * SAMPLE_PERIOD_NS;
    timeline->clock_ns = now;
}

unsigned period_latest(const struct sim_state *state, const struct sim_process *process,
                       unsigned gpu, uint64_t *ended_ns)
{
    uint64_t history = process->queues[gpu].history;
    *ended_ns = state->timelines[gpu].period_start_ns;
    for (; history != 0; history >>= 8, *ended_ns -= SAMPLE_PERIOD_NS)
        if ((history & 0xff) != 0)
            return (unsigned)(history & 0xff);
    return 0;
}
