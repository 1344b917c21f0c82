/* What is wrong with a simulated machine, as its management library (NVML) has to tell it.
 *
 * Whoever plays the machine sets it, NVML reads it; CUDA goes on as if nothing were. A GPU that is
 * gone altogether has no device node, which is the simulator's authority for what there is.
 */
#ifndef SIM_CORE_FAULTS_H
#define SIM_CORE_FAULTS_H

#ifndef VCUDA_CDEF
#include "core/machine.h"
#include <stdbool.h>
#include <stdint.h>
#endif

enum {
    SIM_EVENTS = 64,          /* that are kept; who waits for none of them misses the oldest */
    SIM_EVENT_DOUBLE_BIT = 2, /* as nvmlEventType* */
    SIM_EVENT_XID = 8,
};

/* One GPU. lost: fallen off the bus. call_ns: what each call about it takes, while that stands.
 * double_bits: uncorrectable memory errors since the driver was loaded. */
struct sim_gpu_faults {
    uint64_t call_ns;
    uint64_t double_bits;
    uint32_t lost;
    uint32_t remap_pending; /* a row will be replaced at the next reset */
    uint32_t remap_failed;  /* there was no row left to replace it by */
    uint32_t reserved;
};

/* The machine. call_ns: what each call of NVML takes, while that stands. unloaded: there is no
 * driver. Without topology, events or ECC these are not supported, as in virtual machines. */
struct sim_machine_faults {
    uint64_t call_ns;
    uint32_t unloaded;
    uint32_t no_topology;
    uint32_t no_events;
    uint32_t no_ecc;
};

#ifndef VCUDA_CDEF
/* number: of an Xid, its code. */
struct sim_event {
    uint64_t type;
    uint64_t number;
    uint32_t gpu;
    uint32_t reserved;
};

/* changes: a futex, woken by everything that happens here. loads: of the driver; sessions of an
 * earlier one are dead. event_count: all there ever were. */
struct sim_faults {
    uint32_t changes;
    uint32_t loads;
    uint64_t event_count;
    struct sim_machine_faults machine;
    struct sim_gpu_faults gpus[SIM_GPUS];
    struct sim_event events[SIM_EVENTS];
};
#endif

struct sim_state;

/* Without the lock, all of them. Reading and writing what is wrong now; `gpu` is one of the
 * machine's. */
void faults_get_machine(struct sim_state *state, struct sim_machine_faults *out);
void faults_set_machine(struct sim_state *state, const struct sim_machine_faults *wanted);
void faults_get_gpu(struct sim_state *state, unsigned gpu, struct sim_gpu_faults *out);
void faults_set_gpu(struct sim_state *state, unsigned gpu, const struct sim_gpu_faults *wanted);

/* Something happens to a GPU. */
void faults_event(struct sim_state *state, unsigned gpu, uint64_t type, uint64_t number);

/* The driver is unloaded and loaded again: every GPU is reset. */
void faults_reload(struct sim_state *state);

#ifndef VCUDA_CDEF
/* Take as long as `call_ns` says, until it says less. */
void faults_delay(const uint64_t *call_ns);

/* The first event after `*seen` of a type that is registered for its GPU; moves `*seen` on. */
bool faults_next(struct sim_state *state, const uint64_t types[SIM_GPUS], uint64_t *seen,
                 struct sim_event *out);

/* Sleep until something happens after `changes` was read, or `timeout_ns` are over. */
void faults_wait(struct sim_state *state, uint32_t changes, uint64_t timeout_ns);
uint32_t faults_changes(const struct sim_state *state);
#endif

#endif
