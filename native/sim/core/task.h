/* A piece of work as it is submitted, and what to wait for. Plain values, read by C and cffi. */
#ifndef SIM_CORE_TASK_H
#define SIM_CORE_TASK_H

#ifndef VCUDA_CDEF
#include <stdint.h>
#endif

enum sim_kind {
    SIM_MARKER,         /* no time: an event, a wait */
    SIM_KERNEL,         /* on `sms` SMs */
    SIM_MEMORY,         /* a memset or a copy within the device: on the SMs too, but no launch */
    SIM_COPY_TO_DEVICE, /* on the copy engine of its direction */
    SIM_COPY_TO_HOST,
    SIM_GATE,       /* a marker that does not end before it is opened */
    SIM_COLLECTIVE, /* a kernel that spins until all of its group have begun (collective.h) */
    SIM_HOST, /* a function of the host, from when it may begin until it is said to have ended */
};

/* Lanes: of the legacy stream, and the first of those for blocking and for other streams. */
enum { SIM_LEGACY_LANE = 0, SIM_BLOCKING_LANES = 1, SIM_OTHER_LANES = 33 };

/* after: one past the position of work that this waits for, besides its lane; 0: none. group,
 * members: of a collective, and how many kernels that has. */
struct sim_task {
    uint64_t duration_ns;
    uint64_t after;
    uint64_t group;
    uint32_t members;
    uint32_t sms;
    uint32_t lane;
    enum sim_kind kind;
};

/* The work before position `end` in the lanes of the mask. All zero: nothing. */
struct sim_reach {
    uint64_t end;
    uint64_t lanes;
};

#endif
