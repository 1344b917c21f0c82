/* This process's work on a device: queueing it, and waiting for it.
 *
 * A stream has a lane of the process's queue for the device (core/work.h) and remembers how far its
 * own work reaches. Waiting computes when the work will end at the earliest, sleeps until then and
 * looks again.
 */
#ifndef SIM_CUDA_STREAM_QUEUE_H
#define SIM_CUDA_STREAM_QUEUE_H

#include "core/task.h"
#include "cuda/driver.h"

struct stream {
    uint32_t kind;
    int device;
    struct context *context;
    unsigned flags;
    int priority;
    struct stream_attributes attributes;
    uint64_t number;
    unsigned lane;
    unsigned sms;            /* that its kernels have at most; 0: all */
    bool of_green_interface; /* made by cuGreenCtxStreamCreate */
    uint64_t end;            /* one past the position of its last work */
    uint64_t
        followed[SIM_LANES]; /* by lane: all before that comes before its next work, by events */
    struct capture *capture;
    struct node_set *after;  /* while captured: what its next node comes after */
    struct edge_data *edges; /* as many as a query of `after` was last told of */
    struct stream *also_captured;
};

/* position, lane: of its marker in the queue. end_ns: when it happened, 0 while not known. idle:
 * its stream had nothing to do when it was recorded. */
struct event {
    uint32_t kind;
    int device;
    unsigned flags;
    bool recorded;
    bool idle;
    uint64_t position;
    unsigned lane;
    uint64_t end_ns;
    struct event_page *page; /* of an event that other processes may know (ipc.h), or NULL */
    int file;                /* its page's; 0 for none of our own */
    uint64_t capture;        /* number of the one it was last recorded in, or 0 */
    struct node_set *after;
};

/* A stream handle made plain: a stream of ours, or NULL with a device for the default streams. */
CUresult queue_stream(struct driver *driver, CUstream handle, struct stream **stream, int *device);

/* The driver, and a stream by its handle, as above: what most calls on a stream begin with. */
CUresult queue_find(CUstream handle, struct driver **driver, struct stream **stream, int *device);

/* A lane for a new stream: streams get those of their sort in turn. */
unsigned queue_lane(struct driver *driver, bool blocking);

/* Queue work on a stream (NULL: the legacy default stream of `device`); its lane is filled in. With
 * a full queue this waits until there is room, as the real driver does. event: a marker to
 * remember, or NULL. Returns what to wait for if the work is to be waited for. */
struct sim_reach queue_submit(struct driver *driver, struct stream *stream, int device,
                              struct sim_task task, struct event *event);

/* A marker that waits for an event recorded on the same device. */
struct sim_task queue_waiting_for(const struct event *event);

/* Work that a stream has to wait for, by lane: before that position; 0: nothing. Of a default
 * stream's, which is of many lanes, the last that was queued. */
struct lane_waits {
    uint64_t before[SIM_LANES];
};
void lane_waits_add(struct lane_waits *waits, struct sim_reach reach);
void queue_submit_waits(struct driver *driver, struct stream *stream, int device,
                        const struct lane_waits *waits);

/* The stream's next work comes after an event recorded on the same device; which work, by lane,
 * events have ordered before it so far. */
void queue_follow(struct driver *driver, struct stream *stream, int device, struct event *event);
const uint64_t *queue_followed(const struct driver *driver, const struct stream *stream,
                               int device);

/* Wait for that work, or for everything queued now. */
void queue_wait(struct driver *driver, int device, struct sim_reach reach);
CUresult queue_finish(struct driver *driver, int device);

/* For a function of the host that was queued: 0 if it may begin, or when to look again; and then
 * that it has ended. */
uint64_t queue_host_look(struct driver *driver, int device, struct sim_reach reach);
void queue_host_ended(struct driver *driver, int device, struct sim_reach reach);

bool queue_reached(struct driver *driver, int device, struct sim_reach reach);

/* What is queued now: in the stream (in the legacy one also what it would wait for), or at all. */
struct sim_reach queue_reach(struct driver *driver, const struct stream *stream, int device);
struct sim_reach queue_all(struct driver *driver, int device);

/* Sleep until that time of sim_now(), or until a signal. */
void queue_sleep(uint64_t deadline);

/* What to wait for, for a recorded event; whether it has happened: its end_ns is
 * then known. */
struct sim_reach queue_event_reach(const struct event *event);
bool queue_event_happened(struct driver *driver, struct event *event);

/* Forget an event that is to be destroyed or recorded again; driver->mutex is held. */
void queue_forget_event(struct driver *driver, struct event *event);

#endif
