#include "claims.h"

#include <sched.h>

enum { PATIENCE = 2000 }; /* yields, for a request that is under way */

static uint64_t dropped(struct claims *claims)
{
    uint64_t sum = 0;
    int rows = atomic_load(&claims->rows_used);
    for (int row = 0; row < rows; row++)
        for (int thread = 0; thread < CLAIM_THREADS; thread++)
            sum += atomic_load(&claims->rows[row].claims[thread].dropped);
    return sum;
}

uint64_t claim_begin(struct claims *claims, struct claim *claim, uint64_t bytes)
{
    uint64_t before = dropped(claims);
    atomic_fetch_add(&claim->call, 1);
    atomic_fetch_add(&claim->asked, bytes);
    return before;
}

void claim_end(struct claim *claim, uint64_t bytes, bool refused)
{
    if (refused)
        atomic_fetch_add(&claim->refused, bytes);
    atomic_fetch_add(&claim->call, 1);
}

/* What was asked for by now and not refused; `call` is the one at which this was so. */
static uint64_t granted(const struct claim *claim, uint64_t *call)
{
    for (;;) {
        *call = atomic_load(&claim->call);
        uint64_t asked = atomic_load(&claim->asked), refused = atomic_load(&claim->refused);
        if (atomic_load(&claim->call) == *call)
            return asked - refused;
    }
}

/* The same when the request that was under way is decided, unless that is missed. */
static uint64_t granted_in_the_end(const struct claim *claim)
{
    uint64_t call, later, bytes = granted(claim, &call);
    for (int turn = 0; call % 2 == 1 && turn < PATIENCE; turn++) {
        uint64_t decided = granted(claim, &later);
        if (later != call)
            return later == call + 1 ? decided : bytes;
        sched_yield();
    }
    return bytes;
}

bool claim_wrong(struct claims *claims, uint64_t bytes, uint64_t dropped_before)
{
    uint64_t sum = 0;
    int rows = atomic_load(&claims->rows_used);
    for (int row = 0; row < rows; row++)
        for (int thread = 0; thread < CLAIM_THREADS; thread++)
            sum += granted_in_the_end(&claims->rows[row].claims[thread]);
    return sum - dropped_before + bytes <= claims->limit;
}

void claims_void(struct row *row)
{
    for (int thread = 0; thread < CLAIM_THREADS; thread++) {
        struct claim *claim = &row->claims[thread];
        atomic_store(&claim->dropped, atomic_load(&claim->asked) - atomic_load(&claim->refused));
        atomic_store(&claim->call, (atomic_load(&claim->call) + 1) / 2 * 2);
    }
}

void claims_fail(struct claims *claims, int result)
{
    int none = 0;
    atomic_compare_exchange_strong(&claims->failure, &none, result);
}
