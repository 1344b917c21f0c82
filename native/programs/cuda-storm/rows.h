/* The parent's side of the claims: who has which row. */
#ifndef PROGRAMS_CUDA_STORM_ROWS_H
#define PROGRAMS_CUDA_STORM_ROWS_H

#include "claims.h"

/* A row that nobody has, or -1. */
int row_take(struct claims *claims);

/* With the row that was kept for a child it never had. */
void row_free(struct claims *claims, int row);

/* Who has not ended: say so of each, and where its threads are; SIGKILL to all (that
 * in a signal handler, too). */
void rows_name_living(const struct claims *claims);
void rows_kill(const struct claims *claims);

#endif
