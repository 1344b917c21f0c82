#include "core/timeline.h"
#include "core/collective.h"
#include "core/period.h"
#include "core/process.h"
#include "core/slots.h"
#include "core/work.h"
#include <errno.h>
#include <string.h>

static unsigned slot_of(const struct sim_state *state, const struct sim_process *process)
{
    return (unsigned)(process - state->processes);
}

static bool wanted_by_others(const struct sim_timeline *timeline)
{
    unsigned next = slots_next(timeline->runnable, timeline->holder);
    return next < SIM_PROCESSES && next != timeline->holder;
}

/* A process that was alone at the end of a slice has had another one since. */
static void renew_slice(const struct sim_state *state, struct sim_timeline *timeline)
{
    uint64_t slice = timeline_slice(state), end = timeline->slice_end_ns;
    if (end != 0 && timeline->clock_ns > end)
        timeline->slice_end_ns = end + (timeline->clock_ns - end + slice - 1) / slice * slice;
}

static bool keeps_turn(const struct sim_timeline *timeline)
{
    return timeline->slice_end_ns != 0 && slots_have(timeline->runnable, timeline->holder) &&
           (timeline->clock_ns < timeline->slice_end_ns || !wanted_by_others(timeline));
}

/* Example with switch_ns = 50 us: process 2 had the GPU, 3 gets it at 10 ms. Nothing runs until
 * 10.05 ms, and the slice of 3 begins then. If 3 pauses and comes back while nobody else wanted the
 * GPU, its state is still there: no switch. */
static void give_turn(const struct sim_state *state, struct sim_timeline *timeline, unsigned slot)
{
    uint64_t lost = slot != timeline->holder ? state->machine.driver.switch_ns : 0;
    timeline->holder = slot;
    timeline->switched_ns = timeline->clock_ns + lost;
    timeline->slice_end_ns = timeline->switched_ns + timeline_slice(state);
}

enum activity { IDLE, SWITCHING, BUSY };

/* Give the GPU to who is due, and let it do what takes no time. */
static enum activity dispatch(struct sim_state *state, unsigned gpu)
{
    struct sim_timeline *timeline = &state->timelines[gpu];
    uint64_t sm_count = state->machine.gpus[gpu].sm_count;
    for (;;) {
        if (!keeps_turn(timeline)) {
            unsigned next = slots_next(timeline->runnable, timeline->holder);
            if (next == SIM_PROCESSES)
                return IDLE;
            give_turn(state, timeline, next);
        }
        if (timeline->clock_ns < timeline->switched_ns)
            return SWITCHING;
        struct work_queue queue = work_queue(state, timeline->holder, gpu);
        work_proceed(&queue, 0, sm_count);
        if (queue.queue->running != 0)
            return BUSY;
    }
}

/* When the first of the copies under way ends. */
static uint64_t next_copy(const struct sim_state *state, unsigned gpu)
{
    const uint64_t *copying = state->timelines[gpu].copying;
    uint64_t first = UINT64_MAX;
    for (unsigned slot = slots_from(copying, 0); slot < SIM_PROCESSES;
         slot = slots_from(copying, slot + 1)) {
        struct work_queue queue = work_queue(state, slot, gpu);
        uint64_t end = work_next_copy(&queue);
        first = end < first ? end : first;
    }
    return first;
}

static void end_copies(struct sim_state *state, unsigned gpu)
{
    const uint64_t *copying = state->timelines[gpu].copying;
    for (unsigned slot = slots_from(copying, 0); slot < SIM_PROCESSES;
         slot = slots_from(copying, slot + 1)) {
        struct work_queue queue = work_queue(state, slot, gpu);
        work_end_copies(&queue);
    }
}

static uint64_t earlier(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

/* Up to when nothing changes: nothing ends, the turn does not pass on, the period does not end. */
static uint64_t quiet_until(const struct sim_state *state, unsigned gpu, enum activity activity,
                            uint64_t now)
{
    const struct sim_timeline *timeline = &state->timelines[gpu];
    if (activity == IDLE && slots_from(timeline->copying, 0) == SIM_PROCESSES)
        return now; /* and the periods up to then are idle */
    uint64_t until = earlier(earlier(now, period_end(timeline)), next_copy(state, gpu));
    if (activity == IDLE)
        return until;
    if (activity == SWITCHING)
        return earlier(until, timeline->switched_ns);
    struct work_queue queue = work_queue(state, timeline->holder, gpu);
    uint64_t end = work_next_end(&queue, state->machine.gpus[gpu].sm_count);
    until = earlier(until, timeline->clock_ns + end);
    return wanted_by_others(timeline) ? earlier(until, timeline->slice_end_ns) : until;
}

static void remember_turn(struct sim_timeline *timeline, uint64_t step)
{
    struct sim_turn *last = &timeline->turns[(timeline->turned - 1) % SIM_TURNS];
    uint64_t begin = timeline->clock_ns - step;
    if (last->slot != timeline->holder || last->end_ns != begin) {
        last = &timeline->turns[timeline->turned++ % SIM_TURNS];
        *last = (struct sim_turn){.begin_ns = begin, .slot = timeline->holder};
    }
    last->end_ns = timeline->clock_ns;
}

/* The holder had the GPU for `step` nanoseconds. */
static void receive(struct sim_state *state, unsigned gpu, uint64_t step)
{
    struct sim_timeline *timeline = &state->timelines[gpu];
    struct sim_process *process = &state->processes[timeline->holder];
    struct sim_usage *usage = process_usage(state, process, gpu);
    struct work_queue queue = work_queue(state, timeline->holder, gpu);
    uint64_t sm_count = state->machine.gpus[gpu].sm_count;
    uint64_t sm_step = step * earlier(queue.queue->demand, sm_count);
    remember_turn(timeline, step);
    timeline->period_busy_ns += step;
    timeline->busy_ns += step;
    queue.queue->period_busy_ns += step;
    process->busy_ns[gpu] += step;
    process->sm_ns[gpu] += sm_step;
    usage->busy_ns += step;
    usage->sm_ns += sm_step;
    usage->last_end_ns = timeline->clock_ns;
    work_proceed(&queue, step, sm_count);
}

/* Let what happens until then, where nothing changes before. */
static void move(struct sim_state *state, unsigned gpu, enum activity activity, uint64_t until)
{
    struct sim_timeline *timeline = &state->timelines[gpu];
    if (activity == IDLE)
        timeline->slice_end_ns = 0;
    if (activity == IDLE && slots_from(timeline->copying, 0) == SIM_PROCESSES) {
        period_pass_idle(state, gpu, until);
        return;
    }
    uint64_t step = until - timeline->clock_ns;
    period_sample(state, gpu, until);
    timeline->clock_ns = until;
    renew_slice(state, timeline);
    if (activity == BUSY)
        receive(state, gpu, step);
    else if (activity == SWITCHING)
        timeline->lost_ns += step;
    end_copies(state, gpu);
    if (until == period_end(timeline))
        period_publish(state, gpu);
}

static void advance_alone(struct sim_state *state, unsigned gpu, uint64_t now)
{
    struct sim_timeline *timeline = &state->timelines[gpu];
    while (timeline->clock_ns < now) {
        enum activity activity = dispatch(state, gpu);
        move(state, gpu, activity, quiet_until(state, gpu, activity, now));
    }
}

/* All GPUs, which are at the same time, from one change on any of them to the next. Example: GPU 0
 * has spun since 3 ms, on GPU 1 a kernel ends at 5 ms, after which the last kernel of the
 * collective begins, in dispatch(): both are at 5 ms then, and from there GPU 0 has its length. */
static void advance_together(struct sim_state *state, uint64_t now)
{
    enum activity activity[SIM_GPUS];
    unsigned count = state->machine.gpu_count;
    while (state->timelines[0].clock_ns < now) {
        uint64_t until = now;
        for (unsigned gpu = 0; gpu < count; gpu++)
            activity[gpu] = dispatch(state, gpu);
        for (unsigned gpu = 0; gpu < count; gpu++)
            until = earlier(until, quiet_until(state, gpu, activity[gpu], now));
        for (unsigned gpu = 0; gpu < count; gpu++)
            move(state, gpu, activity[gpu], until);
    }
}

/* From here on they are advanced together. */
static void align_gpus(struct sim_state *state)
{
    uint64_t latest = 0;
    for (unsigned gpu = 0; gpu < state->machine.gpu_count; gpu++)
        if (state->timelines[gpu].clock_ns > latest)
            latest = state->timelines[gpu].clock_ns;
    for (unsigned gpu = 0; gpu < state->machine.gpu_count; gpu++)
        advance_alone(state, gpu, latest);
}

void timeline_advance(struct sim_state *state, unsigned gpu, uint64_t now)
{
    if (state->collective_count > 0)
        advance_together(state, now);
    else
        advance_alone(state, gpu, now);
}

void timeline_settle(struct sim_state *state, uint64_t now)
{
    for (unsigned gpu = 0; gpu < state->machine.gpu_count; gpu++)
        timeline_advance(state, gpu, now);
}

void timeline_prepare(struct sim_state *state, const struct sim_process *process, unsigned gpu)
{
    if (process->queues[gpu].submitted == 0)
        memset(state->work[slot_of(state, process)][gpu], 0, sizeof state->work[0][0]);
}

/* Fills and copies within the device are GPU time, too, but no launches. */
static void count_work(struct sim_state *state, const struct sim_process *process, unsigned gpu,
                       enum sim_kind kind)
{
    struct sim_usage *usage = process_usage(state, process, gpu);
    bool launch = kind == SIM_KERNEL || kind == SIM_COLLECTIVE;
    usage->launches += launch;
    if (usage->first_work_ns == 0 && (launch || kind == SIM_MEMORY))
        usage->first_work_ns = state->timelines[gpu].clock_ns;
}

int timeline_submit(struct sim_state *state, struct sim_process *process, unsigned gpu,
                    const struct sim_task *task, uint64_t *position)
{
    struct work_queue queue = work_queue(state, slot_of(state, process), gpu);
    bool collective = task->kind == SIM_COLLECTIVE;
    if (queue.queue->submitted - queue.queue->completed == SIM_QUEUE_DEPTH ||
        (collective && !collective_has_place(state, task)))
        return -EAGAIN;
    if (collective && state->collective_count == 0)
        align_gpus(state);
    *position = work_add(&queue, task);
    count_work(state, process, gpu, task->kind);
    dispatch(state, gpu); /* what takes no time is done at once on a GPU that is free */
    return 0;
}

void timeline_open(struct sim_state *state, struct sim_process *process, unsigned gpu,
                   uint64_t position)
{
    struct work_queue queue = work_queue(state, slot_of(state, process), gpu);
    work_open(&queue, position);
    dispatch(state, gpu);
}

bool timeline_reached(const struct sim_state *state, const struct sim_process *process,
                      unsigned gpu, struct sim_reach reach)
{
    struct work_queue queue = work_queue(state, slot_of(state, process), gpu);
    return work_reached(&queue, reach);
}

uint64_t timeline_end(const struct sim_state *state, const struct sim_process *process,
                      unsigned gpu, uint64_t position)
{
    struct work_queue queue = work_queue(state, slot_of(state, process), gpu);
    return work_at(&queue, position)->end_ns;
}

const struct sim_turn *timeline_turn(const struct sim_state *state,
                                     const struct sim_process *process, unsigned gpu,
                                     uint64_t after_ns)
{
    const struct sim_timeline *timeline = &state->timelines[gpu];
    uint64_t number = timeline->turned > SIM_TURNS ? timeline->turned - SIM_TURNS : 0;
    for (; number < timeline->turned; number++) {
        const struct sim_turn *turn = &timeline->turns[number % SIM_TURNS];
        if (turn->slot == slot_of(state, process) && turn->end_ns > after_ns)
            return turn;
    }
    return NULL;
}

unsigned timeline_lane(const struct sim_state *state, const struct sim_process *process,
                       unsigned gpu, uint64_t position)
{
    struct work_queue queue = work_queue(state, slot_of(state, process), gpu);
    return work_at(&queue, position)->lane;
}

bool timeline_host_begun(const struct sim_state *state, const struct sim_process *process,
                         unsigned gpu, unsigned lane, uint64_t position)
{
    struct work_queue queue = work_queue(state, slot_of(state, process), gpu);
    return work_host_begun(&queue, lane, position);
}

void timeline_host_ended(struct sim_state *state, const struct sim_process *process, unsigned gpu,
                         unsigned lane)
{
    struct work_queue queue = work_queue(state, slot_of(state, process), gpu);
    work_host_ended(&queue, lane);
    dispatch(state, gpu); /* what followed it may begin at once */
}

void timeline_forget(struct sim_state *state, const struct sim_process *process)
{
    unsigned slot = slot_of(state, process);
    for (unsigned gpu = 0; gpu < state->machine.gpu_count; gpu++) {
        struct sim_timeline *timeline = &state->timelines[gpu];
        timeline->runnable[slot / 64] &= ~(UINT64_C(1) << slot % 64);
        timeline->copying[slot / 64] &= ~(UINT64_C(1) << slot % 64);
        if (timeline->holder == slot)
            timeline->slice_end_ns = 0;
        period_forget(state, process, gpu);
        if (state->collective_count > 0) {
            struct work_queue queue = work_queue(state, slot, gpu);
            work_leave_collectives(&queue);
        }
    }
}
