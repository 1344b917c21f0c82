/* What the manager is told of launches that are longer than the GPU's time slices.
 *
 * Such a launch shares the GPU with those of other containers, and events show how long it was
 * there, not what it had. The manager sees when launches of all containers were there, so it can
 * tell. One of a kind that varies may pass for short beside neighbours, whose slices look the same:
 * it is logged when it was there for longer than its cost and a slice. Each process writes when one
 * of its launches went, and later when it was there and what was charged for it, to a ring that all
 * processes of the container share. A process that ends leaves an entry open: the manager knows who
 * lives.
 *
 * Entries are found by tickets, given away by one atomic addition, and are hints. Who comes late to
 * an entry that belongs to a newer launch by then leaves it alone; should both write at once, the
 * reader may take a mixture for true, once, and NVML puts it right. Any thread; nobody waits; all
 * zero is empty.
 */
#ifndef SHIM_CORE_TIME_LOGBOOK_H
#define SHIM_CORE_TIME_LOGBOOK_H

#include "vcuda_region.h"

/* An entry of one's own. ticket 0: none. paid_ns: what was paid for the launch. */
struct logged {
    uint64_t ticket;
    uint64_t paid_ns;
};

/* A launch was there between these times, and costs and was charged so much. */
struct logbook_end {
    uint64_t begun, ended;
    uint64_t cost_ns;
    uint64_t charged_ns;
};

/* A launch of this slot went now that may be a long one. */
struct logged logbook_open(struct vcuda_logbook *logbook, uint32_t slot, uint64_t now,
                           uint64_t paid_ns);

/* A launch of this slot has ended, logged or not. */
void logbook_close(struct vcuda_logbook *logbook, struct logged logged, uint32_t slot,
                   struct logbook_end end);

/* Nobody will say when it ended. Nothing if somebody has. */
void logbook_cancel(struct vcuda_logbook *logbook, struct logged logged);

#endif
