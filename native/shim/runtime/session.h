/* This process's membership in its container: attached to the manager's regions, or unmanaged.
 *
 * Attached at the first call that needs a limit, never at load. A process without /etc/vcuda is not
 * managed, and everything passes through, unless it was guaranteed limits and only cannot see them,
 * as in a sandbox with mounts of its own: then the session has failed and calls are refused. Where
 * the directory is there, limits hold or nothing works: if the manager does not answer within the
 * bound, the session has failed, too.
 * A forked child finds its session new and says HELLO for itself (fork.h).
 *
 * A program that closes all its descriptors takes ours with them. The pages stay, and with them the
 * limit; what is lost is the alive lock, so the manager is asked for another descriptor.
 *
 * The connection that HELLO was said on stays open, and later requests go over it: a sandbox that a
 * program puts itself into after the start need not allow socket() and connect(). The manager hangs
 * up where it restarts, and then a request connects again.
 *
 * All functions: any thread.
 */
#ifndef SHIM_RUNTIME_SESSION_H
#define SHIM_RUNTIME_SESSION_H

#include "core/memory/books.h"
#include "runtime/hello.h"
#include "runtime/turns.h"
#include "vcuda_region.h"

#include <stdbool.h>

enum session_phase {
    SESSION_NEW = 0,
    SESSION_UNMANAGED,
    SESSION_ATTACHED,
    SESSION_FAILED,
};

/* All zero is a new session. config and books may be used once the phase is SESSION_ATTACHED. */
struct session {
    _Atomic(enum session_phase) phase;
    pthread_mutex_t attaching; /* guards the next two; never held while the manager is asked */
    pthread_t asker;           /* the thread that asks, until then at most, by clock_now(): */
    uint64_t asker_until;      /* 0: none does. One that has left by a jump stays for so long */
    atomic_uint attempts;      /* to attach, ended; whatever came of them */
    const struct vcuda_config *config;
    struct books books;
    struct turns turns;
    struct connection connection; /* of the thread that attaches, then of the one with the lease */
    _Atomic(uint64_t) lease;      /* ends by itself at this time, ns: its thread may have jumped out
                                     of the request. 0: free */
    atomic_uint requests;         /* begun */
    _Atomic(uint64_t) measured;   /* number of the last one that measured << 32 | its errno */
    struct refusal refusal;       /* why the last attempt failed; written before the phase */
    atomic_bool told;             /* the user, of that */
    _Atomic(uint64_t) kept;       /* when the descriptor was last looked at, ns */
    _Atomic(uint64_t) asked;      /* when the manager was last asked for another, ns */
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

/* Have the manager measure what the driver took for this process, and enter it in the books.
 * With `insist` a manager that is away is asked again until the patience is at its end. Threads
 * that ask at once share a measurement that begins after all of them have asked. Returns 0; -EAGAIN
 * if nobody answered; another negated errno if the manager could not tell or not be asked. Attached
 * sessions only. */
int session_measure(struct session *session, uint64_t patience_ns, bool insist);

/* One HELLO over the connection of an attached session. As hello_exchange(); -EINPROGRESS while
 * another thread's is under way. */
int session_request(struct session *session, uint32_t flags, uint64_t deadline,
                    struct welcome *welcome);

/* Say on stderr, once per process, why it could not attach: one line, never waiting for a reader.
 * NULL where there was no memory for a session, and errno says why. */
void session_complain(struct session *session, const char *call);

/* See now and then whether the descriptor is still ours, and ask for another if not: for at most a
 * fifth of a second, at most once a second. For attached sessions, before a reservation. */
void session_keep(struct session *session);

/* Is every GPU of the container granted whole, so that launches need not be held? Asks a file where
 * the process is not attached; whoever cannot tell says no. */
bool session_whole(const struct session *session);

/* Was this process guaranteed limits, whether or not it can see them? True where the library was
 * loaded from the place the agent mounts it at, or the environment names an allocation. */
bool session_promised(void);

/* The container's configuration, to be read; -1 and errno where there is none. The caller closes.
 */
int session_config_open(void);

/* Is this a page of ours? */
bool session_config_usable(const struct vcuda_config *config);

/* Index of a GPU in the configuration, or -1. Attached sessions only. */
int session_device(const struct session *session, const uint8_t uuid[16]);

#endif
