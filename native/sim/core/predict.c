/* When work ends at the earliest: as if the SMs were never shared, nothing waited across lanes, and
 * the turns of competitors lasted as long as is certain. */
#include "core/slots.h"
#include "core/timeline.h"
#include "core/work.h"

/* Nobody knows when a function of the host will have ended: who waits for it looks so often. */
#define HOST_LOOK_NS UINT64_C(20000)

/* The last work of a lane before position `end`; there is one. */
static uint64_t last_before(const struct work_queue *queue, unsigned lane, uint64_t end)
{
    if (queue->queue->lanes[lane].tail < end)
        return queue->queue->lanes[lane].tail;
    while (work_at(queue, --end)->lane != lane)
        ;
    return end;
}

static uint64_t smaller(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

static uint64_t larger(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

/* For how long a competitor will want the GPU without a pause, at least; as far as `enough`. */
static uint64_t certain(const struct work_queue *queue, uint64_t enough)
{
    uint64_t lanes = queue->queue->running, most = 0;
    unsigned lane;
    while (most < enough && work_take_lane(&lanes, &lane))
        most = larger(most, work_left_plain(queue, lane, UINT64_MAX, enough));
    return smaller(most, enough);
}

/* How many slots come before `slot` when turns are given on from the holder: itself comes last. */
static unsigned place(const struct sim_timeline *timeline, unsigned slot)
{
    return (slot + SIM_PROCESSES - timeline->holder - 1) % SIM_PROCESSES;
}

static uint64_t rest_of_switch(const struct sim_timeline *timeline)
{
    return timeline->switched_ns > timeline->clock_ns ? timeline->switched_ns - timeline->clock_ns
                                                      : 0;
}

static uint64_t rest_of_slice(const struct sim_timeline *timeline)
{
    uint64_t begin = larger(timeline->clock_ns, timeline->switched_ns);
    return timeline->slice_end_ns > begin ? timeline->slice_end_ns - begin : 0;
}

/* GPU time that a competitor gets before `slot` has its turn number `turns` from now on. */
static uint64_t meanwhile(const struct sim_state *state, unsigned gpu, unsigned slot,
                          unsigned other, uint64_t turns)
{
    const struct sim_timeline *timeline = &state->timelines[gpu];
    struct work_queue queue = work_queue(state, other, gpu);
    uint64_t own_turns = place(timeline, other) < place(timeline, slot) ? turns : turns - 1;
    uint64_t most = own_turns * timeline_slice(state);
    if (other == timeline->holder)
        most += rest_of_slice(timeline);
    return certain(&queue, most);
}

static bool has_competitors(const struct sim_timeline *timeline, unsigned slot)
{
    unsigned next = slots_next(timeline->runnable, slot);
    return next < SIM_PROCESSES && next != slot;
}

/* Until work that takes `left` of GPU time, in one lane, is done. */
static uint64_t with_turns(const struct sim_state *state, unsigned gpu, unsigned slot,
                           uint64_t left)
{
    const struct sim_timeline *timeline = &state->timelines[gpu];
    bool holds = timeline->holder == slot;
    uint64_t rest = holds ? rest_of_slice(timeline) : 0;
    uint64_t sum = left + rest_of_switch(timeline) + (holds ? 0 : state->machine.driver.switch_ns);
    if (rest > 0 && left <= rest)
        return sum;
    uint64_t slice = timeline_slice(state);
    uint64_t turns = left > rest ? (left - rest + slice - 1) / slice : 1;
    for (unsigned other = slots_from(timeline->runnable, 0); other < SIM_PROCESSES;
         other = slots_from(timeline->runnable, other + 1))
        if (other != slot)
            sum += meanwhile(state, gpu, slot, other, turns);
    return sum;
}

static uint64_t reach_wait(const struct sim_state *state, const struct work_queue *queue,
                           unsigned gpu, struct sim_reach reach);

/* Until the lane's work before position `end` is done. Whatever waits across lanes waits for
 * earlier work, so this comes to an end. */
static uint64_t lane_wait(const struct sim_state *state, const struct work_queue *queue,
                          unsigned gpu, unsigned lane, uint64_t end)
{
    uint64_t left = work_left(queue, lane, last_before(queue, lane, end));
    if ((queue->queue->running >> lane & 1) != 0) {
        uint64_t plain = work_left_plain(queue, lane, end, left);
        return with_turns(state, gpu, queue->slot, plain) + left - plain;
    }
    if ((queue->queue->copying >> lane & 1) != 0)
        return left;
    if ((queue->queue->hosting >> lane & 1) != 0)
        return left + HOST_LOOK_NS;
    uint64_t event = reach_wait(state, queue, gpu, work_awaited_event(queue, lane));
    return left + larger(event, reach_wait(state, queue, gpu, work_awaited_lanes(queue, lane)));
}

static uint64_t reach_wait(const struct sim_state *state, const struct work_queue *queue,
                           unsigned gpu, struct sim_reach reach)
{
    uint64_t lanes = reach.lanes & queue->queue->filled, wait = 0;
    unsigned lane;
    while (work_take_lane(&lanes, &lane))
        if (queue->queue->lanes[lane].head < reach.end)
            wait = larger(wait, lane_wait(state, queue, gpu, lane, reach.end));
    return wait;
}

uint64_t timeline_predict(const struct sim_state *state, const struct sim_process *process,
                          unsigned gpu, struct sim_reach reach)
{
    const struct sim_timeline *timeline = &state->timelines[gpu];
    struct work_queue queue = work_queue(state, (unsigned)(process - state->processes), gpu);
    uint64_t wait = larger(reach_wait(state, &queue, gpu, reach), 1);
    if (has_competitors(timeline, queue.slot)) /* which may die and leave the GPU sooner */
        wait = smaller(wait, REAP_PERIOD_NS);
    return timeline->clock_ns + wait;
}
