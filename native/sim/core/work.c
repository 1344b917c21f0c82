#include "core/work.h"
#include "core/collective.h"

#define FRACTION 16 /* bits of a queue's progress below the nanosecond */
#define LEGACY (UINT64_C(1) << SIM_LEGACY_LANE)
#define BLOCKING ((UINT64_C(1) << SIM_OTHER_LANES) - (UINT64_C(1) << SIM_BLOCKING_LANES))
#define GATE_LOOK_NS UINT64_C(100000)  /* after so long it is worth to look whether one opens */
#define LONGEST_NS (UINT64_C(1) << 46) /* so that differences of progress keep their sign */

static uint64_t bit(unsigned lane)
{
    return UINT64_C(1) << lane;
}

struct work_queue work_queue(const struct sim_state *state, unsigned slot, unsigned gpu)
{
    return (struct work_queue){
        .queue = (struct sim_queue *)&state->processes[slot].queues[gpu],
        .ring = (struct sim_work *)state->work[slot][gpu],
        .timeline = (struct sim_timeline *)&state->timelines[gpu],
        .state = (struct sim_state *)state,
        .slot = slot,
    };
}

static bool is_copy(const struct sim_work *work)
{
    return work->kind == SIM_COPY_TO_DEVICE || work->kind == SIM_COPY_TO_HOST;
}

static bool ended(const struct work_queue *self, uint64_t position)
{
    return position < self->queue->completed || work_at(self, position)->end_ns != 0;
}

/* Has the work before `position` in these lanes ended? */
static bool passed(const struct work_queue *self, uint64_t lanes, uint64_t position)
{
    unsigned lane;
    lanes &= self->queue->filled;
    while (work_take_lane(&lanes, &lane))
        if (self->queue->lanes[lane].head < position)
            return false;
    return true;
}

bool work_reached(const struct work_queue *self, struct sim_reach reach)
{
    return passed(self, reach.lanes, reach.end);
}

/* The lanes whose earlier work a lane's work waits for. */
static uint64_t before(unsigned lane)
{
    if (lane == SIM_LEGACY_LANE)
        return BLOCKING;
    return lane < SIM_OTHER_LANES ? LEGACY : 0;
}

static bool ready(const struct work_queue *self, unsigned lane)
{
    const struct sim_work *head = work_head(self, lane);
    return head->kind != SIM_GATE && (head->after == 0 || ended(self, head->after - 1)) &&
           passed(self, before(lane), self->queue->lanes[lane].head);
}

/* Tell the GPU whether this process has anything for it. */
static void announce(const struct work_queue *self)
{
    uint64_t own = UINT64_C(1) << self->slot % 64;
    uint64_t *runnable = &self->timeline->runnable[self->slot / 64];
    uint64_t *copying = &self->timeline->copying[self->slot / 64];
    *runnable = self->queue->running != 0 ? *runnable | own : *runnable & ~own;
    *copying = self->queue->copying != 0 ? *copying | own : *copying & ~own;
}

static void start_copy(const struct work_queue *self, unsigned lane)
{
    struct sim_work *head = work_head(self, lane);
    uint64_t *free = &self->timeline->engine_free_ns[head->kind - SIM_COPY_TO_DEVICE];
    uint64_t start = *free > self->timeline->clock_ns ? *free : self->timeline->clock_ns;
    head->finish = *free = start + head->duration_ns;
    self->queue->copying |= bit(lane);
}

static void start(const struct work_queue *self, unsigned lane)
{
    struct sim_queue *queue = self->queue;
    struct sim_work *head = work_head(self, lane);
    queue->blocked &= ~bit(lane);
    if (is_copy(head)) {
        start_copy(self, lane);
        return;
    }
    if (head->kind == SIM_HOST) {
        queue->hosting |= bit(lane);
        return;
    }
    uint64_t length = head->kind == SIM_COLLECTIVE ? LONGEST_NS : head->duration_ns;
    head->finish = queue->progress + (length << FRACTION);
    queue->running |= bit(lane);
    queue->demand += head->sms;
}

static void try_to_start(const struct work_queue *self, unsigned lane)
{
    if (ready(self, lane))
        start(self, lane);
    else
        self->queue->blocked |= bit(lane);
}

static struct sim_work *enter(const struct work_queue *self, const struct sim_task *task)
{
    const struct sim_queue *queue = self->queue;
    struct sim_work *work = work_at(self, queue->submitted);
    *work = (struct sim_work){
        .duration_ns = task->duration_ns < LONGEST_NS ? task->duration_ns : LONGEST_NS,
        .after = task->after,
        .sms = task->sms,
        .kind = (uint8_t)task->kind,
        .lane = (uint8_t)task->lane,
    };
    if (is_copy(work) && work->duration_ns == 0)
        work->duration_ns = 1; /* so that each ends after it began */
    if (work->kind == SIM_COLLECTIVE)
        work->collective = collective_join(self->state, task);
    work->crossing = is_copy(work) || work->kind == SIM_HOST ||
                     (work->after != 0 && !ended(self, work->after - 1)) ||
                     (before(work->lane) & queue->filled) != 0;
    if (work->kind == SIM_GATE)
        work->crossing = true;
    return work;
}

uint64_t work_add(const struct work_queue *self, const struct sim_task *task)
{
    struct sim_queue *queue = self->queue;
    struct sim_lane *lane = &queue->lanes[task->lane];
    struct sim_work *work = enter(self, task);
    uint64_t position = queue->submitted++;
    bool first = (queue->filled & bit(task->lane)) == 0;
    if (first)
        lane->head = position;
    else
        work_at(self, lane->tail)->next = position;
    lane->tail = position;
    lane->work_end += work->duration_ns;
    lane->crossings += work->crossing;
    work->work_end = lane->work_end;
    queue->filled |= bit(task->lane);
    if (first) {
        try_to_start(self, task->lane);
        announce(self);
    }
    return position;
}

void work_open(const struct work_queue *self, uint64_t position)
{
    struct sim_work *work = work_at(self, position);
    work->kind = SIM_MARKER;
    if (work_head(self, work->lane) == work)
        try_to_start(self, work->lane);
    announce(self);
}

/* Take the head, which has ended, out of its lane. */
static void leave(const struct work_queue *self, unsigned number)
{
    struct sim_queue *queue = self->queue;
    struct sim_lane *lane = &queue->lanes[number];
    struct sim_work *head = work_head(self, number);
    head->end_ns = self->timeline->clock_ns;
    lane->crossings -= head->crossing;
    if (head->kind == SIM_COLLECTIVE)
        collective_leave(self->state, head->collective);
    if (lane->head == lane->tail)
        queue->filled &= ~bit(number);
    lane->head = head->next;
    while (queue->completed < queue->submitted && work_at(self, queue->completed)->end_ns != 0)
        queue->completed++;
}

/* The head of a lane has ended: start what that lets start. */
static void end_head(const struct work_queue *self, unsigned lane)
{
    leave(self, lane);
    uint64_t candidates = self->queue->blocked;
    if ((self->queue->filled & bit(lane)) != 0)
        candidates |= bit(lane);
    while (work_take_lane(&candidates, &lane))
        try_to_start(self, lane);
}

static uint64_t speed_divisor(const struct work_queue *self, uint64_t sm_count)
{
    return self->queue->demand > sm_count ? self->queue->demand : sm_count;
}

static uint64_t nearest(const struct work_queue *self)
{
    uint64_t lanes = self->queue->running, least = UINT64_MAX;
    unsigned lane;
    while (work_take_lane(&lanes, &lane)) {
        uint64_t left = work_head(self, lane)->finish - self->queue->progress;
        least = left < least ? left : least;
    }
    return least;
}

/* Rounded up: at the end it has ended. */
uint64_t work_next_end(const struct work_queue *self, uint64_t sm_count)
{
    uint64_t divisor = speed_divisor(self, sm_count);
    unsigned __int128 scaled = (unsigned __int128)nearest(self) * divisor;
    unsigned __int128 unit = (unsigned __int128)sm_count << FRACTION;
    return divisor == sm_count ? (nearest(self) + (1U << FRACTION) - 1) >> FRACTION
                               : (uint64_t)((scaled + unit - 1) / unit);
}

static bool take_finished(const struct work_queue *self, unsigned *out)
{
    uint64_t lanes = self->queue->running;
    while (work_take_lane(&lanes, out))
        if ((int64_t)(work_head(self, *out)->finish - self->queue->progress) <= 0)
            return true;
    return false;
}

/* The kernels of collectives that have the GPU for the first time begin. */
static void begin_collectives(const struct work_queue *self)
{
    uint64_t lanes = self->queue->running;
    unsigned lane;
    while (work_take_lane(&lanes, &lane)) {
        struct sim_work *head = work_head(self, lane);
        if (head->kind != SIM_COLLECTIVE || head->spins)
            continue;
        head->spins = true;
        collective_begin(self->state, head->collective);
    }
}

void work_release(const struct work_queue *self, uint32_t collective)
{
    uint64_t lanes = self->queue->running;
    unsigned lane;
    while (work_take_lane(&lanes, &lane)) {
        struct sim_work *head = work_head(self, lane);
        if (head->kind == SIM_COLLECTIVE && head->spins && head->collective == collective)
            head->finish = self->queue->progress + (head->duration_ns << FRACTION);
    }
}

void work_leave_collectives(const struct work_queue *self)
{
    const struct sim_queue *queue = self->queue;
    for (uint64_t position = queue->completed; position < queue->submitted; position++) {
        const struct sim_work *work = work_at(self, position);
        if (work->kind == SIM_COLLECTIVE && work->end_ns == 0)
            collective_leave(self->state, work->collective);
    }
}

void work_proceed(const struct work_queue *self, uint64_t step, uint64_t sm_count)
{
    struct sim_queue *queue = self->queue;
    if (self->state->collective_count > 0)
        begin_collectives(self);
    uint64_t divisor = speed_divisor(self, sm_count);
    unsigned lane;
    queue->progress += divisor == sm_count
                           ? step << FRACTION
                           : (uint64_t)(((unsigned __int128)step << FRACTION) * sm_count / divisor);
    while (take_finished(self, &lane)) {
        queue->running &= ~bit(lane);
        queue->demand -= work_head(self, lane)->sms;
        end_head(self, lane);
    }
    announce(self);
}

uint64_t work_next_copy(const struct work_queue *self)
{
    uint64_t lanes = self->queue->copying, first = UINT64_MAX;
    unsigned lane;
    while (work_take_lane(&lanes, &lane)) {
        uint64_t finish = work_head(self, lane)->finish;
        first = finish < first ? finish : first;
    }
    return first;
}

void work_end_copies(const struct work_queue *self)
{
    struct sim_queue *queue = self->queue;
    uint64_t lanes = queue->copying;
    unsigned lane;
    while (work_take_lane(&lanes, &lane)) {
        if (work_head(self, lane)->finish > self->timeline->clock_ns)
            continue;
        queue->copying &= ~bit(lane);
        end_head(self, lane);
    }
    announce(self);
}

bool work_host_begun(const struct work_queue *self, unsigned lane, uint64_t position)
{
    return (self->queue->hosting & bit(lane)) != 0 && self->queue->lanes[lane].head == position;
}

void work_host_ended(const struct work_queue *self, unsigned lane)
{
    self->queue->hosting &= ~bit(lane);
    end_head(self, lane);
    announce(self);
}

static uint64_t left_of_head(const struct work_queue *self, unsigned lane)
{
    const struct sim_work *head = work_head(self, lane);
    if (head->kind == SIM_COLLECTIVE && !collective_complete(self->state, head->collective))
        return head->duration_ns; /* at least */
    if (head->kind == SIM_GATE)
        return GATE_LOOK_NS;
    if ((self->queue->running & bit(lane)) != 0)
        return (head->finish - self->queue->progress) >> FRACTION;
    if ((self->queue->copying & bit(lane)) != 0)
        return head->finish - self->timeline->clock_ns;
    return head->duration_ns;
}

uint64_t work_left(const struct work_queue *self, unsigned lane, uint64_t position)
{
    const struct sim_work *head = work_head(self, lane);
    return work_at(self, position)->work_end - head->work_end + left_of_head(self, lane);
}

uint64_t work_left_plain(const struct work_queue *self, unsigned lane, uint64_t end,
                         uint64_t enough)
{
    const struct sim_lane *queued = &self->queue->lanes[lane];
    if (queued->crossings == 0 && queued->tail < end)
        return work_left(self, lane, queued->tail);
    uint64_t last = queued->head, left = work_left(self, lane, last);
    while (left < enough && last != queued->tail) {
        uint64_t next = work_at(self, last)->next;
        if (next >= end || work_at(self, next)->crossing)
            break;
        left += work_at(self, next)->duration_ns;
        last = next;
    }
    return left;
}

struct sim_reach work_awaited_event(const struct work_queue *self, unsigned lane)
{
    uint64_t after = work_head(self, lane)->after;
    if (after == 0 || ended(self, after - 1))
        return (struct sim_reach){0};
    return (struct sim_reach){after, bit(work_at(self, after - 1)->lane)};
}

struct sim_reach work_awaited_lanes(const struct work_queue *self, unsigned lane)
{
    return (struct sim_reach){self->queue->lanes[lane].head, before(lane)};
}
