/* Which entries of a list of processes are the container's, and what they look like from inside.
 *
 * Pure: lists and books in, lists out. A driver names processes by their pids on the host, or, if
 * it translates, by those of the caller's pid namespace and then shows no others. Inside of the
 * container only its own names mean anything, so every entry that is kept gets that one.
 */
#ifndef SHIM_CORE_MEMORY_RESIDENTS_H
#define SHIM_CORE_MEMORY_RESIDENTS_H

#include "vcuda_region.h"

#ifndef VCUDA_CDEF
#include <stdbool.h>
#endif

/* How the entries of a list are laid out. memory: offset of the bytes a process holds. */
struct residents_layout {
    size_t size, pid, memory;
    bool has_memory;
};

enum residents_naming { RESIDENTS_BY_HOST, RESIDENTS_BY_CALLER };

/* A list being sifted. device: in the books; -1 for a GPU that is not of the container, where the
 * driver's figures stand. */
struct residents {
    const struct vcuda_books *books;
    int device;
    const struct residents_layout *layout;
    void *list;
    unsigned count;
    bool listed[VCUDA_SLOTS]; /* slots whose processes are in the list */
};

/* How the driver that gave this list names processes. */
enum residents_naming residents_naming(const struct residents *residents);

/* Drop what is not the container's; what stays says what the books say. */
void residents_keep(struct residents *residents);

/* Add who holds memory and is not listed: a driver hides processes of other pid namespaces. Of each
 * new entry pid and memory are set, all other bytes are 0xff: not available, by NVML's convention.
 * The list has room for VCUDA_SLOTS entries more. */
void residents_add_hidden(struct residents *residents);

/* The pid a driver that names so knows the container's process by; 0 if there is no such. */
uint32_t residents_pid_of(const struct vcuda_books *books, uint32_t shown,
                          enum residents_naming naming);

#endif
