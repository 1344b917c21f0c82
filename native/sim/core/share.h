/* Physical memory that several processes hold: it lives while one of them does.
 *
 * One holder pays, at first the one that made it. When the payer lets go the charge moves to
 * another holder, so that the sum over all processes is always what is really taken. Memory that is
 * on its way, in a file descriptor nobody has imported while its maker let go, is held by nobody
 * here and is charged anew to who imports it.
 */
#ifndef SIM_CORE_SHARE_H
#define SIM_CORE_SHARE_H

#include "core/state.h"

/* Let others hold memory that `process` is charged for. Its identity; 0 when the table is full. */
uint64_t share_begin(struct sim_state *state, const struct sim_process *process, unsigned gpu,
                     uint64_t bytes);

/* Hold it too: `identity` as before, or, if nobody holds it any more, a new one, charged to
 * `process`. 0 without memory. */
uint64_t share_join(struct sim_state *state, struct sim_process *process, uint64_t identity,
                    unsigned gpu, uint64_t bytes, uint64_t now);

/* Does `process` hold it without paying for it? */
bool share_guest(const struct sim_state *state, const struct sim_process *process,
                 const struct sim_share *share);

/* Let go of it. */
void share_end(struct sim_state *state, struct sim_process *process, uint64_t identity);

/* Let go of all: `process` is about to be cleared. */
void share_leave(struct sim_state *state, struct sim_process *process);

#endif
