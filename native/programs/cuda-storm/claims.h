/* What the threads of the storm themselves say they hold, at most: shared by all of them.
 *
 * A thread counts bytes as asked for before it asks, as refused when they were, and as dropped when
 * they are back. All three only grow. So of a request that was refused this is certain: nobody held
 * more, at any moment of it, than what was asked for until its end and not refused, less what had
 * been dropped before its beginning. If that leaves room, there was room all along, and the refusal
 * was wrong. Requests that are still under way at its end are waited for, for a moment; then they
 * count as granted. What a dead process held counts for one second more.
 */
#ifndef PROGRAMS_CUDA_STORM_CLAIMS_H
#define PROGRAMS_CUDA_STORM_CLAIMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { CLAIM_ROWS = 512, CLAIM_THREADS = 4 };

enum phase { STORM, QUIET, END }; /* QUIET: hold still; END: give all back and exit */

/* One thread's. call: odd while it asks. */
struct claim {
    _Atomic(uint64_t) call, asked, refused, dropped;
};

/* One process's. */
struct row {
    struct claim claims[CLAIM_THREADS];
    atomic_int pid;    /* 0: nobody's */
    uint64_t retires;  /* the parent's: ns after which its claims are void; 0 while it lives */
    atomic_bool taken; /* the parent's */
    int heir;          /* the parent's: the row kept for its child, or -1 */
};

struct claims {
    uint64_t limit;
    uint64_t kinds; /* that are taken (kinds.h) */
    bool uncounted; /* the driver takes bytes that nobody can claim: no refusal is judged */
    atomic_int phase;
    atomic_int quiet; /* threads that hold still */
    _Atomic(uint64_t) taken, given, refused, wrong, forks, execs;
    atomic_int failure; /* the first result that should not be */
    atomic_int rows_used;
    struct row rows[CLAIM_ROWS];
};

/* Before a call. Returns what all threads have dropped, for claim_wrong(). */
uint64_t claim_begin(struct claims *claims, struct claim *claim, uint64_t bytes);

/* After it. */
void claim_end(struct claim *claim, uint64_t bytes, bool refused);

/* After that, of a request that was refused: was there room all along? */
bool claim_wrong(struct claims *claims, uint64_t bytes, uint64_t dropped_before);

/* Nothing is held by this process any more. */
void claims_void(struct row *row);

void claims_fail(struct claims *claims, int result);

#endif
