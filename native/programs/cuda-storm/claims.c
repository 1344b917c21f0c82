#include "claims.h"

uint64_t claims_dropped(const struct claims *claims)
{
    uint64_t sum = 0;
    for (int row = 0; row < CLAIM_ROWS; row++)
        sum += atomic_load(&claims->rows[row].down);
    return sum;
}

bool claims_wrong(const struct claims *claims, uint64_t dropped_before)
{
    uint64_t sum = 0;
    for (int row = 0; row < CLAIM_ROWS; row++)
        sum += atomic_load(&claims->rows[row].up);
    return sum - dropped_before <= claims->limit;
}

void claims_void(struct row *row)
{
    atomic_store(&row->down, atomic_load(&row->up));
}

void claims_fail(struct claims *claims, int result)
{
    int none = 0;
    atomic_compare_exchange_strong(&claims->failure, &none, result);
}
