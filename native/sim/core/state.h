/* The state all processes on a simulated machine share: one mapped file, `/dev/nvidiactl`.
 *
 * It is the ground truth: what exists, who holds how much memory, what work is queued. It knows
 * nothing of limits. One robust process-shared mutex guards everything; when its owner dies the
 * next one makes it consistent. A process is removed, with its memory and its queued work, when it
 * is found dead: at least every REAP_PERIOD_NS while anybody works, and before every query that
 * shows other processes. Totals are summed, never stored, so that no death leaves one wrong.
 *
 * Functions taking `struct sim_state` want the lock held, unless they say otherwise.
 */
#ifndef SIM_STATE_H
#define SIM_STATE_H

#include "core/machine.h"
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    SIM_MAGIC = 0x55504753, /* "SGPU" */
    SIM_VERSION = 2,
    SIM_SHARES = 1024,      /* physical memories that more than one process may hold at once */
    SIM_QUEUE_DEPTH = 1024, /* launches a process can have queued on a GPU, as on a real one */
};

#define REAP_PERIOD_NS UINT64_C(20000000)

/* One piece of work. work_end: the queue's work up to and including it. end_ns: when it ended. */
struct sim_work {
    uint64_t work_end;
    uint64_t end_ns;
};

/* What one process has queued on one GPU, in order. Positions and work (nanoseconds of GPU time)
 * only grow; position p lies at p modulo the depth until p plus the depth is submitted. */
struct sim_queue {
    uint64_t submitted;
    uint64_t completed;
    uint64_t work_submitted;
    uint64_t work_done;
    uint64_t period_busy_ns;
    uint32_t sm_percent;
    uint32_t reserved;
};

/* pid 0: free. start_time guards against reuse of the pid; image (AT_RANDOM) tells exec to the
 * process itself, stack to others. */
struct sim_process {
    int32_t pid;
    uint32_t tenant;
    uint64_t start_time;
    uint64_t stack;
    uint64_t pid_namespace;
    uint64_t image;
    uint32_t contexts[SIM_GPUS];
    uint64_t bytes[SIM_GPUS];
    uint64_t allocations[SIM_GPUS];
    uint64_t busy_ns[SIM_GPUS];
    struct sim_queue queues[SIM_GPUS];
};

/* Physical memory that was exported: it lives while any process holds it. `payer`, one of them, has
 * its bytes. identity 0: free. */
struct sim_share {
    uint64_t identity;
    uint64_t bytes;
    uint32_t gpu;
    uint32_t payer;                     /* slot */
    uint8_t holders[SIM_PROCESSES / 8]; /* a bit for each slot */
};

struct sim_timeline {
    uint64_t clock_ns; /* the GPU's past is settled up to here */
    uint64_t period_start_ns;
    uint64_t period_busy_ns;
    uint32_t busy_percent; /* of the last whole sample period: any kernel running */
    uint32_t reserved;
};

struct sim_state {
    uint32_t magic;
    uint32_t version;
    uint64_t size;
    pthread_mutex_t mutex;
    struct sim_machine machine;
    uint64_t reaped_ns;
    uint32_t process_limit; /* slots at or above were never used */
    uint32_t tenant_limit;
    uint64_t tenant_serial; /* the last one given */
    uint64_t share_serial;  /* the last identity given */
    struct sim_share shares[SIM_SHARES];
    struct sim_timeline timelines[SIM_GPUS];
    struct sim_tenant tenants[SIM_TENANTS];
    struct sim_process processes[SIM_PROCESSES];
    struct sim_work work[SIM_PROCESSES][SIM_GPUS][SIM_QUEUE_DEPTH]; /* sparse in the file */
};

/* Without the lock: make the file, map it, unmap it. 0, or a negated errno (-EPROTO: not ours). */
int sim_create(const char *path, const struct sim_machine *machine);
int sim_open(const char *path, struct sim_state **out);
void sim_close(struct sim_state *state);

/* Take the lock; the dead are gone and `now` (CLOCK_MONOTONIC) is returned. */
uint64_t sim_lock(struct sim_state *state);
void sim_unlock(struct sim_state *state);

/* Remove every process that is dead, now. */
void sim_reap(struct sim_state *state, uint64_t now);

uint64_t sim_now(void);

/* Take the time from this word instead of the system, for an observer of a run on a virtual clock;
 * NULL: from the system again. The programs of such a run have their clock put under them. */
void sim_use_clock(const uint64_t *word);

#endif
