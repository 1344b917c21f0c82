/* HELLO to the manager and its WELCOME (vcuda_protocol.h). */
#ifndef SHIM_RUNTIME_HELLO_H
#define SHIM_RUNTIME_HELLO_H

#include "core/file_identity.h"
#include "vcuda_protocol.h"

#include <stdbool.h>
#include <stdint.h>

#ifndef VCUDA_DIRECTORY
#define VCUDA_DIRECTORY "/etc/vcuda"
#endif
#define VCUDA_SOCKET VCUDA_DIRECTORY "/vcuda.sock"

/* What one HELLO leaves open for the next. All zero: nothing. A thread that jumped out of an
 * exchange leaves it `busy`: then it is not used again. */
struct connection {
    bool open, busy;
    int fd;
    struct file_identity file; /* what `fd` must be of to be ours */
    unsigned unread;           /* WELCOMEs that were not waited for to the end */
};

/* What a WELCOME brings. The descriptor is ours to close; -1 where none was asked for. */
struct welcome {
    int32_t slot;
    int books;
};

/* Why there was none: a negated errno, who gave it, and the manager's words. `tried`: the system
 * call of our own that failed, and on what; NULL if it was none. */
struct refusal {
    int error;
    bool by_manager;
    const char *tried;
    uint64_t waited_ns;
    char reason[VCUDA_REASON_SIZE];
};

/* Say HELLO and wait for the WELCOME until `deadline`, ns of CLOCK_MONOTONIC: over the connection
 * if it is open, over a new one if the manager has hung up. With VCUDA_HELLO_PERSISTENT it stays
 * open after it. Returns 0; -EAGAIN if nobody answered, which may pass: a manager that is being
 * started does not; another negated errno if the manager refused, speaks another language, or a
 * system call failed; then `refusal` says so in words. */
int hello_exchange(struct connection *connection, uint32_t flags, uint64_t deadline,
                   struct welcome *welcome, struct refusal *refusal);

/* Note that `tried` has failed, and errno. Returns it, negated. */
int refusal_of_call(struct refusal *refusal, const char *tried);

void connection_close(struct connection *connection);

#endif
