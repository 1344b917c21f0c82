#include "rows.h"

#include <signal.h>
#include <stdio.h>

int row_take(struct claims *claims)
{
    for (int row = 0; row < CLAIM_ROWS; row++) {
        if (atomic_load(&claims->rows[row].taken))
            continue;
        claims->rows[row].heir = -1;
        atomic_store(&claims->rows[row].taken, true);
        if (row >= atomic_load(&claims->rows_used))
            atomic_store(&claims->rows_used, row + 1);
        return row;
    }
    return -1;
}

/* It is the child's own by now; or the child never was, or has ended. */
static void disinherit(struct claims *claims, int heir)
{
    for (int row = 0; row < CLAIM_ROWS; row++)
        if (claims->rows[row].heir == heir)
            claims->rows[row].heir = -1;
}

static void release(struct claims *claims, int row)
{
    disinherit(claims, row);
    atomic_store(&claims->rows[row].pid, 0);
    claims->rows[row].retires = 0;
    atomic_store(&claims->rows[row].taken, false);
}

void row_free(struct claims *claims, int row)
{
    int heir = claims->rows[row].heir;
    if (heir >= 0 && atomic_load(&claims->rows[heir].pid) == 0)
        release(claims, heir);
    release(claims, row);
}

static int living(const struct row *row)
{
    return row->retires == 0 ? atomic_load(&row->pid) : 0;
}

void rows_name_living(const struct claims *claims)
{
    for (int row = 0; row < CLAIM_ROWS; row++)
        if (living(&claims->rows[row]) > 0)
            fprintf(stderr, "cuda-storm: process %d did not end: killed\n",
                    living(&claims->rows[row]));
}

void rows_kill(const struct claims *claims)
{
    for (int row = 0; row < CLAIM_ROWS; row++) {
        int pid = living(&claims->rows[row]);
        if (pid > 0)
            kill(pid, SIGKILL);
    }
}
