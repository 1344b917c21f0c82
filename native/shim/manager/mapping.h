/* Mappings of the agent that survive what happens to the file below them.
 *
 * A file can lose its pages under a mapping: a disk fails to give them (EIO), is full or read-only
 * when a page is first written, or a program truncates a file that it was handed. The kernel then
 * sends SIGBUS. Here it costs the mapping and not the agent: zero pages of the agent's own take the
 * place of the file, and the mapping counts as lost until it is renewed.
 *
 * Never part of a shim: it handles a signal. Any thread; a mapping has one owner, and nobody uses
 * it after it is closed.
 */
#ifndef SHIM_MANAGER_MAPPING_H
#define SHIM_MANAGER_MAPPING_H

#ifndef VCUDA_CDEF
#include <stdbool.h>
#include <stddef.h>
#endif

/* Map the first `size` bytes, shared, readable and writable. NULL and errno on failure; ENFILE if
 * there are too many. `resident`: keep them in memory, as far as this process may. */
void *mapping_open(int descriptor, size_t size, bool resident);

/* Whether zero pages have taken the file's place. */
bool mapping_lost(const void *mapping);

/* Map a file at the same place, so that pointers into it stay good. 0, or a negated errno and
 * nothing changed. */
int mapping_renew(void *mapping, int descriptor);

void mapping_close(void *mapping);

#endif
