/* The other processes of the container: which of them are dead, and taking back what those held.
 *
 * A process holds a write lock on its byte of the books for as long as it lives, by an open
 * file description that is its own; the kernel drops it at death. The manager clears a dead
 * process's slot within a moment. Where it is away, whoever is refused looks for the dead itself.
 *
 * No living process can lose a byte by this:
 *   - a slot is emptied only by who holds its alive lock and, holding it, found its owner dead by
 *     pid: gone, a zombie, or a process that was started at another time. So the lock alone proves
 *     nothing: a daemon that has closed all its descriptors lives, and is seen to live;
 *   - an owner in another pid namespace cannot be seen, so it is never found dead;
 *   - the owner is read after the lock was taken, and the manager, when it has given a slot to a
 *     process, looks for that lock and takes another slot if somebody holds it. So no slot changes
 *     owners between the finding and the emptying, however long the finder was stopped in between;
 *   - words are emptied from the values they had before the finding, by compare and exchange;
 *   - threads of one process share their locks: one looks at a time, and no other waits for it.
 * `pid` stays: slots are the manager's to give.
 *
 * Any thread. Observers (slot below 0) may call nothing here.
 */
#ifndef SHIM_CORE_PEERS_H
#define SHIM_CORE_PEERS_H

#include "core/memory/books.h"

#ifndef VCUDA_CDEF
#include <stdbool.h>
#endif

/* Take one's own alive lock, and say which pid namespace one is in. 0, or a negated errno: then
 * one is told from the dead by pid alone. Waits a moment for a peer that is looking. */
int peers_join(struct books *books);

/* For who looks for the dead, or puts another descriptor into `fd`: true for one thread at a time.
 */
bool peers_begin(struct books *books);
void peers_end(struct books *books);

/* Is `fd` still the books? A program may close all it has. */
bool peers_descriptor_kept(const struct books *books);

/* Take back what dead processes hold on a device, if one looked not just before. Was there any? */
bool peers_reclaim(struct books *books, unsigned device);

#endif
