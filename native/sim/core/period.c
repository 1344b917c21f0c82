#include "core/period.h"
#include "core/pids.h"

static uint32_t percent(uint64_t busy_ns)
{
    uint64_t rounded = (busy_ns * 100 + SAMPLE_PERIOD_NS / 2) / SAMPLE_PERIOD_NS;
    return rounded < 100 ? (uint32_t)rounded : 100;
}

/* When in the current period the sample is taken. The mixing is splitmix64's. */
static uint64_t instant(const struct sim_timeline *timeline, unsigned gpu)
{
    uint64_t mixed = timeline->period_start_ns + (uint64_t)gpu * UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return timeline->period_start_ns + (mixed ^ mixed >> 31) % SAMPLE_PERIOD_NS;
}

void period_sample(struct sim_state *state, unsigned gpu, uint64_t until)
{
    struct sim_timeline *timeline = &state->timelines[gpu];
    const struct sim_process *process = &state->processes[timeline->holder];
    uint64_t taken = instant(timeline, gpu);
    if (taken < timeline->clock_ns || taken >= until || process->queues[gpu].submitted == 0)
        return;
    timeline->sample = (struct sim_sample){.start_time = process->start_time,
                                           .pid_namespace = process->pid_namespace,
                                           .pid = process->pid,
                                           .host_pid = process->host_pid,
                                           .slot = timeline->holder};
}

static void keep_sample(struct sim_timeline *timeline)
{
    uint64_t busy = (timeline->period_busy_ns * 10000 + SAMPLE_PERIOD_NS / 2) / SAMPLE_PERIOD_NS;
    if (timeline->period_busy_ns == 0)
        timeline->sample = (struct sim_sample){0};
    timeline->sample.busy = busy < 10000 ? (uint32_t)busy : 10000;
    timeline->sample.ended_ns = period_end(timeline);
    timeline->ring[timeline->sampled++ % SIM_RING] = timeline->sample;
    timeline->sample = (struct sim_sample){0};
}

void period_publish(struct sim_state *state, unsigned gpu)
{
    struct sim_timeline *timeline = &state->timelines[gpu];
    keep_sample(timeline);
    timeline->busy_percent = percent(timeline->period_busy_ns);
    timeline->period_busy_ns = 0;
    timeline->period_start_ns += SAMPLE_PERIOD_NS;
    for (unsigned slot = 0; slot < state->process_limit; slot++) {
        struct sim_queue *queue = &state->processes[slot].queues[gpu];
        queue->history = queue->history << 8 | percent(queue->period_busy_ns);
        queue->period_busy_ns = 0;
    }
}

/* Of the idle periods after the current one, those that nobody will remember are left out. */
void period_pass_idle(struct sim_state *state, unsigned gpu, uint64_t now)
{
    struct sim_timeline *timeline = &state->timelines[gpu];
    period_sample(state, gpu, now);
    if (now >= period_end(timeline)) {
        period_publish(state, gpu);
        uint64_t idle = (now - timeline->period_start_ns) / SAMPLE_PERIOD_NS;
        if (idle > SIM_RING)
            timeline->period_start_ns += (idle - SIM_RING) * SAMPLE_PERIOD_NS;
        while (now >= period_end(timeline))
            period_publish(state, gpu);
    }
    timeline->clock_ns = now;
}

static bool names(const struct sim_sample *sample, const struct sim_process *process)
{
    return sample->pid != 0 && sample->pid == process->pid &&
           sample->start_time == process->start_time &&
           sample->pid_namespace == process->pid_namespace;
}

/* What the host calls it cannot be found out any more. */
void period_forget(struct sim_state *state, const struct sim_process *process, unsigned gpu)
{
    struct sim_timeline *timeline = &state->timelines[gpu];
    int32_t pid = process->host_pid != PID_UNSEEN ? process->host_pid : PID_GONE;
    for (unsigned place = 0; place < SIM_RING; place++)
        if (names(&timeline->ring[place], process))
            timeline->ring[place].host_pid = pid;
    if (names(&timeline->sample, process))
        timeline->sample.host_pid = pid;
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

static unsigned every_process(struct sim_state *state, unsigned gpu, uint64_t after_ns,
                              struct sim_utilization out[SIM_PROCESSES])
{
    unsigned count = 0;
    for (unsigned slot = 0; slot < state->process_limit; slot++) {
        struct sim_process *process = &state->processes[slot];
        struct sim_utilization row = {0};
        row.percent = period_latest(state, process, gpu, &row.sample_ns);
        if (process->pid == 0 || row.percent == 0 || row.sample_ns <= after_ns)
            continue;
        row.pid = pids_here(state, process);
        if (row.pid > 0)
            out[count++] = row;
    }
    return count;
}

/* The caller's number of the process that a sample names. */
static int pid_of(struct sim_state *state, const struct sim_sample *sample)
{
    struct sim_process *alive = &state->processes[sample->slot];
    struct sim_process ended = {
        .pid = sample->pid, .host_pid = sample->host_pid, .pid_namespace = sample->pid_namespace};
    return pids_here(state, names(sample, alive) ? alive : &ended);
}

static struct sim_utilization *row_of(struct sim_utilization *rows, unsigned *count, int pid)
{
    for (unsigned i = 0; i < *count; i++)
        if (rows[i].pid == pid)
            return &rows[i];
    rows[*count] = (struct sim_utilization){.pid = pid};
    return &rows[(*count)++];
}

static unsigned one_process(struct sim_state *state, unsigned gpu, uint64_t after_ns,
                            struct sim_utilization out[SIM_PROCESSES])
{
    struct sim_timeline *timeline = &state->timelines[gpu];
    unsigned named = 0, samples = 0, kept = 0;
    uint64_t oldest = timeline->sampled > SIM_RING ? timeline->sampled - SIM_RING : 0;
    for (uint64_t number = oldest; number < timeline->sampled; number++) {
        const struct sim_sample *sample = &timeline->ring[number % SIM_RING];
        if (sample->ended_ns <= after_ns)
            continue;
        samples++;
        int pid = sample->pid != 0 ? pid_of(state, sample) : 0;
        if (pid <= 0)
            continue;
        struct sim_utilization *row = row_of(out, &named, pid);
        row->percent += sample->busy;
        row->sample_ns = sample->ended_ns;
    }
    for (unsigned i = 0; i < named; i++) {
        out[i].percent = (out[i].percent + 50 * samples) / (100 * samples);
        if (out[i].percent > 0)
            out[kept++] = out[i];
    }
    return kept;
}

unsigned period_utilization(struct sim_state *state, unsigned gpu, uint64_t after_ns,
                            struct sim_utilization out[SIM_PROCESSES])
{
    switch (state->machine.driver.samples) {
    case SIM_SAMPLES_ONE_PROCESS:
        return one_process(state, gpu, after_ns, out);
    case SIM_SAMPLES_NONE:
        return 0;
    default:
        return every_process(state, gpu, after_ns, out);
    }
}
