/* This process's work on a device: queueing it, and waiting for it.
 *
 * All streams of a process share its one queue per device; a stream remembers how far its own work
 * reaches. Waiting computes when the work will end and sleeps until then, in bounded steps, because
 * other processes may arrive or die meanwhile.
 */
#ifndef SIM_CUDA_QUEUE_H
#define SIM_CUDA_QUEUE_H

#include "cuda/driver.h"

struct stream {
    uint32_t kind;
    int device;
    struct context *context;
    unsigned flags;
    int priority;
    uint64_t number;
    uint64_t reach; /* one past the position of its last work */
    struct capture *capture;
    struct node_set *after;  /* while captured: what its next node comes after */
    struct edge_data *edges; /* as many as a query of `after` was last told of */
    struct stream *also_captured;
};

/* end_ns: when it happened, 0 while not known. */
struct event {
    uint32_t kind;
    int device;
    unsigned flags;
    bool recorded;
    uint64_t position;
    uint64_t end_ns;
    struct event_page *page; /* of an event that other processes may know (ipc.h), or NULL */
    int file;                /* its page's; 0 for none of our own */
    uint64_t capture;        /* number of the one it was last recorded in, or 0 */
    struct node_set *after;
};

/* A stream handle made plain: a stream of ours, or NULL with a device for the default streams. */
CUresult queue_stream(struct driver *driver, CUstream handle, struct stream **stream, int *device);

/* Queue work on a stream (NULL: a default stream of `device`). With a full queue this waits, as the
 * real driver does. event: a marker to remember, or NULL. */
void queue_submit(struct driver *driver, struct stream *stream, int device, uint64_t duration_ns,
                  struct event *event);

/* Wait for all work up to, but not including, position `reach`; or for everything queued now. */
void queue_wait(struct driver *driver, int device, uint64_t reach);
CUresult queue_finish(struct driver *driver, int device);

bool queue_reached(struct driver *driver, int device, uint64_t reach);

/* How far the device's queue, or the stream's part of it, reaches now. */
uint64_t queue_reach(struct driver *driver, const struct stream *stream, int device);

/* Whether a recorded event has happened; its end_ns is then known. */
bool queue_event_happened(struct driver *driver, struct event *event);

/* Forget an event that is to be destroyed or recorded again; driver->mutex is held. */
void queue_forget_event(struct driver *driver, struct event *event);

#endif
