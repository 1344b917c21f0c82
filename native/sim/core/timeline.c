#include "core/timeline.h"
#include "core/process.h"
#include <errno.h>

static struct sim_work *work_at(const struct sim_state *state, const struct sim_process *process,
                                unsigned gpu, uint64_t position)
{
    unsigned slot = (unsigned)(process - state->processes);
    return (struct sim_work *)&state->work[slot][gpu][position % SIM_QUEUE_DEPTH];
}

static uint64_t pending(const struct sim_queue *queue)
{
    return queue->work_submitted - queue->work_done;
}

/* How many processes share the GPU now, and the work after which the first of them completes
 * something. */
static unsigned sharers(const struct sim_state *state, unsigned gpu, uint64_t *step)
{
    unsigned count = 0;
    for (unsigned slot = 0; slot < state->process_limit; slot++) {
        const struct sim_process *process = &state->processes[slot];
        const struct sim_queue *queue = &process->queues[gpu];
        if (pending(queue) == 0)
            continue;
        const struct sim_work *head = work_at(state, process, gpu, queue->completed);
        uint64_t left = head->work_end - queue->work_done;
        if (count++ == 0 || left < *step)
            *step = left;
    }
    return count;
}

static void complete(struct sim_state *state, const struct sim_process *process, unsigned gpu,
                     struct sim_queue *queue)
{
    while (queue->completed < queue->submitted) {
        struct sim_work *head = work_at(state, process, gpu, queue->completed);
        if (head->work_end > queue->work_done)
            break;
        head->end_ns = state->timelines[gpu].clock_ns;
        queue->completed++;
    }
}

/* `step` nanoseconds of GPU time for every process with pending work. */
static void give(struct sim_state *state, unsigned gpu, uint64_t step)
{
    for (unsigned slot = 0; slot < state->process_limit; slot++) {
        struct sim_process *process = &state->processes[slot];
        struct sim_queue *queue = &process->queues[gpu];
        if (pending(queue) == 0)
            continue;
        struct sim_usage *usage = process_usage(state, process, gpu);
        queue->work_done += step;
        queue->period_busy_ns += step;
        process->busy_ns[gpu] += step;
        usage->busy_ns += step;
        usage->last_end_ns = state->timelines[gpu].clock_ns;
        complete(state, process, gpu, queue);
    }
}

static uint32_t percent(uint64_t busy_ns)
{
    uint64_t rounded = (busy_ns * 100 + SAMPLE_PERIOD_NS / 2) / SAMPLE_PERIOD_NS;
    return rounded < 100 ? (uint32_t)rounded : 100;
}

/* Close the sample period: what was counted becomes what NVML shows. */
static void publish_period(struct sim_state *state, unsigned gpu)
{
    struct sim_timeline *timeline = &state->timelines[gpu];
    timeline->busy_percent = percent(timeline->period_busy_ns);
    timeline->period_busy_ns = 0;
    timeline->period_start_ns += SAMPLE_PERIOD_NS;
    for (unsigned slot = 0; slot < state->process_limit; slot++) {
        struct sim_queue *queue = &state->processes[slot].queues[gpu];
        queue->sm_percent = percent(queue->period_busy_ns);
        queue->period_busy_ns = 0;
    }
}

/* Whole periods in which nothing ran need no counting one by one. */
static void pass_idle(struct sim_state *state, unsigned gpu, uint64_t now)
{
    struct sim_timeline *timeline = &state->timelines[gpu];
    for (int closed = 0; closed < 2 && now - timeline->period_start_ns >= SAMPLE_PERIOD_NS;
         closed++)
        publish_period(state, gpu);
    uint64_t whole = (now - timeline->period_start_ns) / SAMPLE_PERIOD_NS;
    timeline->period_start_ns += whole * SAMPLE_PERIOD_NS;
    timeline->clock_ns = now;
}

/* The largest step for `count` sharers that stays inside the sample period and before now. */
static uint64_t bounded_step(const struct sim_timeline *timeline, uint64_t step, unsigned count,
                             uint64_t now)
{
    uint64_t period_end = timeline->period_start_ns + SAMPLE_PERIOD_NS;
    uint64_t until = now < period_end ? now : period_end;
    uint64_t room = until > timeline->clock_ns ? (until - timeline->clock_ns) / count : 0;
    return step < room ? step : room;
}

void timeline_advance(struct sim_state *state, unsigned gpu, uint64_t now)
{
    struct sim_timeline *timeline = &state->timelines[gpu];
    while (timeline->clock_ns < now) {
        uint64_t step = 0;
        unsigned count = sharers(state, gpu, &step);
        if (count == 0) {
            pass_idle(state, gpu, now);
            return;
        }
        /* Less than a nanosecond for each is left for later: no time is lost. */
        step = bounded_step(timeline, step, count, now);
        timeline->clock_ns += step * count;
        timeline->period_busy_ns += step * count;
        if (step > 0)
            give(state, gpu, step);
        else if (now - timeline->period_start_ns < SAMPLE_PERIOD_NS)
            return;
        else
            publish_period(state, gpu);
    }
}

void timeline_settle(struct sim_state *state, uint64_t now)
{
    for (unsigned gpu = 0; gpu < state->machine.gpu_count; gpu++)
        timeline_advance(state, gpu, now);
}

int timeline_submit(struct sim_state *state, struct sim_process *process, unsigned gpu,
                    uint64_t duration_ns, uint64_t now, uint64_t *position)
{
    struct sim_queue *queue = &process->queues[gpu];
    if (queue->submitted - queue->completed == SIM_QUEUE_DEPTH)
        return -EAGAIN;
    struct sim_work *work = work_at(state, process, gpu, queue->submitted);
    *work = (struct sim_work){.work_end = queue->work_submitted + duration_ns};
    *position = queue->submitted++;
    queue->work_submitted += duration_ns;
    complete(state, process, gpu, queue);
    if (duration_ns > 0) {
        struct sim_usage *usage = process_usage(state, process, gpu);
        usage->launches++;
        if (usage->first_launch_ns == 0)
            usage->first_launch_ns = now;
    }
    return 0;
}

uint64_t timeline_predict(const struct sim_state *state, const struct sim_process *process,
                          unsigned gpu, uint64_t position)
{
    uint64_t end = state->timelines[gpu].clock_ns;
    const struct sim_queue *own = &process->queues[gpu];
    if (position < own->completed)
        return end;
    uint64_t left = work_at(state, process, gpu, position)->work_end - own->work_done;
    for (unsigned slot = 0; slot < state->process_limit; slot++) {
        uint64_t other = pending(&state->processes[slot].queues[gpu]);
        end += other < left ? other : left; /* the others get as much meanwhile, if they want */
    }
    return end;
}

uint64_t timeline_end(const struct sim_state *state, const struct sim_process *process,
                      unsigned gpu, uint64_t position)
{
    return work_at(state, process, gpu, position)->end_ns;
}
