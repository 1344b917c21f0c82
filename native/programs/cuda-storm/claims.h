/* What the processes of the storm themselves say they hold, at most: shared by all of them.
 *
 * A row is one process's. It claims bytes before it asks for them and drops the claim when they are
 * back, so that claims are never less than what is held. Both sums only grow. So of a request that
 * was refused this is certain: had everybody, from before it until after, held all they claimed at
 * its end less what they had dropped at its beginning, and that still leaves room, then there was
 * room all along, and the refusal was wrong. What a dead process held counts for one second more.
 */
#ifndef STORM_CLAIMS_H
#define STORM_CLAIMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { CLAIM_ROWS = 512 };

enum phase { STORM, QUIET, END }; /* QUIET: hold still; END: give all back and exit */

struct row {
    _Atomic(uint64_t) up, down;
    atomic_int pid;    /* 0: nobody's */
    uint64_t retires;  /* the parent's: ns after which its claims are void; 0 while it lives */
    atomic_bool taken; /* the parent's */
    int heir;          /* the parent's: the row kept for its child, or -1 */
};

struct claims {
    uint64_t limit;
    atomic_int phase;
    atomic_int quiet; /* threads that hold still */
    _Atomic(uint64_t) taken, given, refused, wrong, execs;
    atomic_int failure; /* the first result that should not be */
    struct row rows[CLAIM_ROWS];
};

/* What all rows have dropped, for claims_wrong(). */
uint64_t claims_dropped(const struct claims *claims);

/* After a refusal, the claim still made: was there room all along? */
bool claims_wrong(const struct claims *claims, uint64_t dropped_before);

/* Nothing is claimed by this row any more. */
void claims_void(struct row *row);

void claims_fail(struct claims *claims, int result);

#endif
