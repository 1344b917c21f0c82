/* This process's membership in its container: attached to the manager's regions, or unmanaged.
 *
 * Attached at the first call that needs a limit, never at load. A process without /etc/vcuda is not
 * managed: everything passes through. Where the directory is there, limits hold or nothing works:
 * if the manager does not answer within the bound, the session has failed and calls are refused.
 * A forked child finds its session new and says HELLO for itself (fork.h).
 *
 * All functions: any thread.
 */
#ifndef SHIM_RUNTIME_SESSION_H
#define SHIM_RUNTIME_SESSION_H

#include "core/books.h"
#include "vcuda_region.h"

#include <stdbool.h>

#ifndef VCUDA_DIRECTORY
#define VCUDA_DIRECTORY "/etc/vcuda"
#endif

enum session_phase {
    SESSION_NEW = 0,
    SESSION_UNMANAGED,
    SESSION_ATTACHED,
    SESSION_FAILED,
};

/* All zero is a new session. config and books may be used once the phase is SESSION_ATTACHED. */
struct session {
    _Atomic(enum session_phase) phase;
    pthread_mutex_t attaching; /* guards asking; never held while the manager is asked */
    pthread_cond_t attempted;
    bool asking;
    atomic_uint attempts; /* to attach, ended; whatever came of them */
    const struct vcuda_config *config;
    struct books books;
};

/* How to attach: flags of the HELLO, and for how long to ask a manager that does not answer. */
struct session_manner {
    uint32_t flags;
    uint64_t patience_ns;
};

/* Attach if the session is new; with `again` also if it had failed. Of callers at once one asks and
 * all take its answer, so that nobody waits longer than one patience after the attempt under way.
 * Returns the phase, which is not SESSION_NEW. */
enum session_phase session_attach(struct session *session, struct session_manner manner,
                                  bool again);

static inline enum session_phase session_phase(const struct session *session)
{
    /* Pairs with the release in session_attach(): whoever sees "attached" sees the regions. */
    return atomic_load_explicit(&session->phase, memory_order_acquire);
}

/* Index of a GPU in the configuration, or -1. Attached sessions only. */
int session_device(const struct session *session, const uint8_t uuid[16]);

#endif
