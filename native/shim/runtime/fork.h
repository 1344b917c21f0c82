/* State of this process alone: a forked child finds it zero.
 *
 * A child shares nothing of CUDA with its parent, and must not take its parent's slot, locks or
 * half-done work for its own. So all mutable state lies in pages that the kernel empties at fork
 * (MADV_WIPEONFORK; on kernels before 4.14 a fork handler does it), and a child begins anew by
 * itself, at no cost to a process that never forks. All zero must be a valid beginning.
 */
#ifndef SHIM_RUNTIME_FORK_H
#define SHIM_RUNTIME_FORK_H

#include <stddef.h>

/* The state kept at `*place`; made, zeroed, at the first call of the process family. Any thread.
 * NULL if there is no memory. At most FORK_STATES different places. */
void *fork_state(void *_Atomic *place, size_t size);

/* What a child must not keep: with the books it would hold its parent's file locks, and on the
 * connection the manager would take it for its parent. */
enum fork_descriptor { FORK_BOOKS, FORK_CONNECTION, FORK_RING, FORK_DESCRIPTORS };

/* From now on a child closes `descriptor`, unless it is another file by then. -1 for none. */
void fork_close(enum fork_descriptor which, int descriptor);

/* A child must not see this shared mapping. */
void fork_unmap(void *mapping, size_t size);

enum { FORK_STATES = 4 };

#endif
