/* What one process has queued on one GPU: which work may run, and how far what runs has come.
 *
 * A stream's work is in a lane, first in, first out; streams that share a lane wait for each other
 * for no reason, as streams that share a hardware queue of a real GPU do. The work at the head of
 * a lane runs when what it waits for has ended: the event it is to come after; for the legacy
 * stream (lane 0) all earlier work of blocking streams; for blocking streams (lanes 1 to 32) all
 * earlier work of the legacy stream. Streams that do not block have the lanes above those.
 *
 * What runs, runs together. While its demands for SMs fit the GPU each piece proceeds at full
 * speed; beyond that all at sm_count / demand. So all that runs proceeds alike, and one number, the
 * queue's progress, says how far: work ends when that reaches the mark set at its start. Markers
 * (events, waits) want no SM and no time, but their turn.
 *
 * A kernel of a collective (collective.h) spins from when its process first has the GPU until the
 * last one of its group has begun; from then on it takes its length.
 *
 * A function of the host wants neither SM nor turn; how long it takes is not known. Its process
 * says when it has ended.
 *
 * Copies between host and device want no SM and no turn: a copy engine of the GPU, one for each
 * direction, takes them one after another as they become ready, whoever's they are.
 */
#ifndef SIM_CORE_WORK_H
#define SIM_CORE_WORK_H

#include "core/state.h"
#include "core/task.h"

/* The parts of the state that one queue's work is about. */
struct work_queue {
    struct sim_queue *queue;
    struct sim_work *ring;
    struct sim_timeline *timeline;
    struct sim_state *state;
    unsigned slot;
};

struct work_queue work_queue(const struct sim_state *state, unsigned slot, unsigned gpu);

static inline struct sim_work *work_at(const struct work_queue *self, uint64_t position)
{
    return &self->ring[position % SIM_QUEUE_DEPTH];
}

/* The work at the head of a lane that is not empty. */
static inline struct sim_work *work_head(const struct work_queue *self, unsigned lane)
{
    return work_at(self, self->queue->lanes[lane].head);
}

/* Add to the lane; the queue is not full. Returns the position. */
uint64_t work_add(const struct work_queue *self, const struct sim_task *task);

/* The gate at this position is a marker from now on. */
void work_open(const struct work_queue *self, uint64_t position);

/* All of that collective have begun: what runs of it here takes its length from now on. */
void work_release(const struct work_queue *self, uint32_t collective);

/* The process is gone, and with it the rest of what it had in collectives. */
void work_leave_collectives(const struct work_queue *self);

/* Nanoseconds until something that runs ends, if nothing is added; something runs. */
uint64_t work_next_end(const struct work_queue *self, uint64_t sm_count);

/* Let what runs proceed for `step` nanoseconds, which end at the GPU's clock, and what then is done
 * end. 0: what takes no time. */
void work_proceed(const struct work_queue *self, uint64_t step, uint64_t sm_count);

/* May the function of the host at that position begin? Then it has begun, until it has ended. */
bool work_host_begun(const struct work_queue *self, unsigned lane, uint64_t position);
void work_host_ended(const struct work_queue *self, unsigned lane);

/* When the first of the copies under way ends; there is one. */
uint64_t work_next_copy(const struct work_queue *self);

/* End the copies that are done at the GPU's clock. */
void work_end_copies(const struct work_queue *self);

/* Has all the work that `reach` means ended? */
bool work_reached(const struct work_queue *self, struct sim_reach reach);

/* What is left of the lane's work up to and including the position in it, at full speed. */
uint64_t work_left(const struct work_queue *self, unsigned lane, uint64_t position);

/* The same of the work from the head on that follows without waiting for anything but its lane:
 * before position `end`, and perhaps no more of it than makes up `enough`. The head runs. */
uint64_t work_left_plain(const struct work_queue *self, unsigned lane, uint64_t end,
                         uint64_t enough);

/* What a head that may not start yet waits for: an event, and earlier work of other lanes. */
struct sim_reach work_awaited_event(const struct work_queue *self, unsigned lane);
struct sim_reach work_awaited_lanes(const struct work_queue *self, unsigned lane);

/* Take the lowest lane out of a mask; false once it is empty. */
static inline bool work_take_lane(uint64_t *mask, unsigned *lane)
{
    if (*mask == 0)
        return false;
    *lane = (unsigned)__builtin_ctzll(*mask);
    *mask &= *mask - 1;
    return true;
}

#endif
