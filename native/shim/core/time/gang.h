/* Gang scheduling: devices of a container whose kernels wait for one another go on together.
 *
 * A collective (of NCCL, say) spins on its GPU until the same one has begun on all others, and is
 * charged for that. If each device were held back when its own clock says so, the others would spin
 * meanwhile, owe more, be held back in turn, and so on: next to none of their time would be work.
 * So the first device to launch a collective waits until no clock of the gang is further ahead than
 * its burst; once it had to wait, until a part of the burst less, so that all go on for a while
 * before they stop again. Whatever a device launches while another is ahead of it by a collective
 * goes at once, for that one spins. What comes before a collective is held back by the device's own
 * clock only: nobody spins for it yet, and a device with neighbours, which takes longer, may begin
 * earlier.
 *
 * Each process counts its collectives: ranks of one communicator launch the same ones in the same
 * order. A device belongs to the gang while its last collective is not older than GANG_FRESH_NS and
 * its number near: devices of other jobs, or of ranks that died, are soon none of it.
 *
 * One word for each device, in the container's books: a hint, as in turn.h. Whatever is lost or
 * stale, each device's limit is its clock's, and it holds. Nobody sleeps here.
 */
#ifndef SHIM_CORE_TIME_GANG_H
#define SHIM_CORE_TIME_GANG_H

#include "core/time/limiter.h"

#ifndef VCUDA_CDEF
#include <stdbool.h>
#endif

enum {
    GANG_FRESH_NS = 1000000000,
    GANG_OVERDRAFT_NS = 50000000, /* of GPU time that a device may owe which others wait for */
    GANG_NEAR = 1024,             /* collectives: as many as launches fit into a stream */
    GANG_STOPS = 4,               /* once stopped, it goes on with a burst's so manieth part */
    GANG_STAMP_BITS = 24,         /* time in a word is in units of 17 ms */
};

/* What a process sees from one of its devices: how many collectives it has launched there, and when
 * the last one. */
struct gang {
    struct vcuda_books *books;
    const struct vcuda_config *config;
    uint32_t device;
    uint32_t collectives;
    uint64_t last;
    uint64_t now;
};

/* Does the device belong to a gang, with any other one? */
bool gang_any(const struct gang *gang);

/* Has another device launched a collective that this one has not? Then it spins. */
bool gang_behind(const struct gang *gang);

/* ns until no clock is too far ahead, if nobody launches meanwhile. stopped: it had to wait. */
uint64_t gang_pause(const struct gang *gang, bool stopped);

/* Tell the others how many collectives this device has launched. */
void gang_tell(const struct gang *gang);

#endif
