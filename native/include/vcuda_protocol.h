/* What is said on /etc/vcuda/vcuda.sock: one HELLO, one WELCOME, then the manager hangs up.
 *
 * With VCUDA_HELLO_PERSISTENT it may leave the connection open instead, once the process has a slot
 * and as long as it lives; then each further HELLO on it has one WELCOME, in the same order. A
 * manager that is restarted, short of descriptors or of before hangs up, and the caller connects
 * again.
 *
 * A process that says HELLO again gets the slot it has; with VCUDA_HELLO_KEEP that or nothing, for
 * a process that has lost its descriptors and must not lose its bytes. With VCUDA_HELLO_MEASURE the
 * WELCOME comes after the manager has entered into `overhead` what the driver holds for the process
 * beyond `used`. It refuses with EBUSY where memory moved all the while, with EIO while it cannot
 * measure and with ENODATA where it never can: an estimate stands then.
 *
 * A stream socket; fixed-size little-endian structs. With a WELCOME of status 0 the descriptor of
 * the books travels by SCM_RIGHTS (read-write, for an observer read-only), last. The configuration
 * is opened by the caller itself, beside the socket, where its container can only read; it says so
 * by VCUDA_HELLO_OPENS_CONFIG. A caller without that flag is a shim of before: in a container of
 * before it is handed the configuration first, as it expects, and elsewhere it is refused, because
 * root of a container can open a descriptor of the manager's again for writing. A manager of before
 * knows no such flag and hands over both.
 * The manager takes the caller's host pid from SO_PEERCRED; what the caller says of itself is
 * for messages, and for the names its own container knows its processes by.
 */
#ifndef VCUDA_PROTOCOL_H
#define VCUDA_PROTOCOL_H

#ifndef VCUDA_CDEF
#include <stdint.h>
#endif

enum {
    VCUDA_PROTOCOL_MAGIC = 0x41445556, /* "VUDA" */
    VCUDA_PROTOCOL_VERSION = 1,
    VCUDA_HELLO = 1,
    VCUDA_WELCOME = 2,
    VCUDA_HELLO_OBSERVER = 1, /* flag: only reads (the NVML shim); gets no slot */
    VCUDA_HELLO_MEASURE = 2,  /* flag: first measure what the driver took for this process */
    VCUDA_HELLO_KEEP = 4,     /* flag: this program has a slot already; fresh descriptors for it */
    VCUDA_HELLO_OPENS_CONFIG = 8, /* flag: no descriptor of the configuration is wanted */
    VCUDA_HELLO_PERSISTENT = 16,  /* flag: the connection is to stay open for further ones */
    VCUDA_NO_SLOT = -1,
    VCUDA_REASON_SIZE = 96,
};

struct vcuda_hello {
    uint32_t magic;
    uint16_t version;
    uint16_t kind; /* VCUDA_HELLO */
    uint32_t region_abi;
    uint32_t flags;
    int32_t pid;      /* as the caller sees itself */
    char program[44]; /* 0-terminated, for people */
};

struct vcuda_welcome {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;  /* VCUDA_WELCOME */
    int32_t status; /* 0, or a negated errno: EPROTO wrong version, ENOSPC no free slot, ESTALE it
                       has no slot to keep, ESRCH the manager cannot see the process, EAGAIN trouble
                       of its own that may pass */
    int32_t slot;   /* this process's slot in the books, or VCUDA_NO_SLOT */
    char reason[VCUDA_REASON_SIZE]; /* why not, 0-terminated */
    uint8_t reserved[16];
};

#ifndef VCUDA_CDEF
_Static_assert(sizeof(struct vcuda_hello) == 64, "frozen");
_Static_assert(sizeof(struct vcuda_welcome) == 128, "frozen");
#endif

#endif
