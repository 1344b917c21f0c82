/* One HELLO to the manager and its WELCOME (vcuda_protocol.h). */
#ifndef SHIM_RUNTIME_HELLO_H
#define SHIM_RUNTIME_HELLO_H

#include "vcuda_protocol.h"

#include <stdbool.h>
#include <stdint.h>

/* What a WELCOME brings. The descriptor is ours to close. */
struct welcome {
    int32_t slot;
    int books;
};

/* Why there was none: a negated errno, who gave it, and the manager's words. */
struct refusal {
    int error;
    bool by_manager;
    uint64_t waited_ns;
    char reason[VCUDA_REASON_SIZE];
};

/* Say HELLO on the socket at `path` and wait for the WELCOME until `deadline`, ns of
 * CLOCK_MONOTONIC. Returns 0; -EAGAIN if nobody answered, which may pass; another negated errno if
 * the manager refused or speaks another language; then `refusal` says so in words. */
int hello_exchange(const char *path, uint32_t flags, uint64_t deadline, struct welcome *welcome,
                   struct refusal *refusal);

#endif
