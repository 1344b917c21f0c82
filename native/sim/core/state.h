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
#ifndef SIM_CORE_STATE_H
#define SIM_CORE_STATE_H

#include "core/faults.h"
#include "core/machine.h"
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    SIM_MAGIC = 0x55504753, /* "SGPU" */
    SIM_VERSION = 10,
    SIM_SHARES = 1024,     /* physical memories that more than one process may hold at once */
    SIM_LANES = 64,        /* hardware queues of a process, as bits of a mask */
    SIM_ENGINES = 2,       /* copy engines: to the device, to the host */
    SIM_COLLECTIVES = 256, /* groups of kernels that wait for one another, at once */
    SIM_TURNS = 4096,      /* of a GPU, that are remembered */
};

#define REAP_PERIOD_NS UINT64_C(20000000)

/* One piece of work (work.h). next: the one after it in its lane. work_end: the lane's work up to
 * and including it. after: one past the position of work that it waits for besides, 0 for none.
 * finish: the progress of the queue at which it ends, of a copy the time. end_ns: when it ended, 0
 * before. collective: its place, if it is of one; spins: it has begun. */
struct sim_work {
    uint64_t next;
    uint64_t work_end;
    uint64_t duration_ns;
    uint64_t after;
    uint64_t finish;
    uint64_t end_ns;
    uint32_t sms;
    uint8_t kind;
    uint8_t lane;
    bool crossing; /* waits, or may, for more than the one before it in its lane */
    bool spins;
    uint32_t collective;
    uint32_t reserved;
};

/* What is queued in one lane, first in, first out. head and tail have a meaning while it is not
 * empty. crossings: pieces of work that are `crossing`. */
struct sim_lane {
    uint64_t head;
    uint64_t tail;
    uint64_t work_end;
    uint64_t crossings;
};

/* What one process has queued on one GPU. Positions only grow; position p lies at p modulo the
 * depth until p plus the depth is submitted. completed: all before it has ended. The masks are of
 * lanes: not empty, and what became of the work at their head. progress: nanoseconds of unhindered
 * work done while it had the GPU, times 2^16. demand: SMs wanted by what runs. */
struct sim_queue {
    uint64_t submitted;
    uint64_t completed;
    uint64_t filled;
    uint64_t blocked;
    uint64_t running;
    uint64_t copying;
    uint64_t hosting;
    uint64_t progress;
    uint64_t demand;
    uint64_t period_busy_ns;
    uint64_t history; /* percent of the last sample periods, one byte each, the latest lowest */
    struct sim_lane lanes[SIM_LANES];
};

/* pid 0: free; as the process has it in its own pid namespace, whose inode is here. host_pid: as
 * the host has it, where that is another one (pids.h). start_time guards against reuse of the pid;
 * image (AT_RANDOM) tells exec to the process itself, stack to others. */
struct sim_process {
    int32_t pid;
    int32_t host_pid;
    uint32_t tenant;
    uint32_t reserved;
    uint64_t start_time;
    uint64_t stack;
    uint64_t pid_namespace;
    uint64_t image;
    uint32_t contexts[SIM_GPUS];
    uint64_t bytes[SIM_GPUS];
    uint64_t managed[SIM_GPUS];  /* of these */
    uint64_t imported[SIM_GPUS]; /* not of these: made by other processes, opened by this one */
    uint64_t allocations[SIM_GPUS];
    uint64_t busy_ns[SIM_GPUS];
    uint64_t sm_ns[SIM_GPUS];
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

/* One sample of utilisation that names one process (period.h), as it calls itself and as the host
 * does: a copy, since the process may have ended. pid 0: nobody's. busy: of the GPU, in hundredths
 * of a percent. */
struct sim_sample {
    uint64_t ended_ns;
    uint64_t start_time;
    uint64_t pid_namespace;
    int32_t pid;
    int32_t host_pid;
    uint32_t slot;
    uint32_t busy;
};

/* A slot's work ran on a GPU, without a pause. */
struct sim_turn {
    uint64_t begin_ns;
    uint64_t end_ns;
    uint64_t slot;
};

/* One GPU. holder: the slot that has it, from switched_ns on, and until slice_end_ns if others want
 * it; that 0: the slot that had it last. The masks are of slots: with work that wants the SMs, and
 * with copies under way. lost_ns: GPU time that work had to wait for switches between processes. */
struct sim_timeline {
    uint64_t clock_ns; /* the GPU's past is settled up to here */
    uint64_t slice_end_ns;
    uint64_t switched_ns;
    uint64_t lost_ns;
    uint64_t engine_free_ns[SIM_ENGINES]; /* when a copy engine has done all it was given */
    uint64_t runnable[SIM_PROCESSES / 64];
    uint64_t copying[SIM_PROCESSES / 64];
    uint64_t period_start_ns;
    uint64_t period_busy_ns;
    uint64_t busy_ns;      /* of it, since the machine was made: anything ran */
    uint32_t busy_percent; /* of the last whole sample period: any kernel running */
    uint32_t holder;
    struct sim_sample sample; /* of the current period: whom it names, once that is known */
    struct sim_sample ring[SIM_RING];
    uint64_t sampled; /* how many samples there were: the ring has the last ones */
    struct sim_turn turns[SIM_TURNS];
    uint64_t turned; /* the same of turns */
};

/* Kernels that wait for one another (collective.h). members: how many there will be; 0: free.
 * queued: those that wait or run now. begun: those that have begun. */
struct sim_collective {
    uint64_t group;
    uint32_t members;
    uint32_t queued;
    uint32_t begun;
    uint32_t reserved;
};

struct sim_state {
    uint32_t magic;
    uint32_t version;
    uint64_t size;
    pthread_mutex_t mutex;
    struct sim_machine machine;
    struct sim_faults faults;
    uint64_t pid_namespace; /* the host's: inode */
    uint64_t reaped_ns;
    uint32_t process_limit; /* slots at or above were never used */
    uint32_t tenant_limit;
    uint64_t tenant_serial; /* the last one given */
    uint64_t share_serial;  /* the last identity given */
    struct sim_share shares[SIM_SHARES];
    uint32_t collective_count; /* that are not free */
    struct sim_collective collectives[SIM_COLLECTIVES];
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
