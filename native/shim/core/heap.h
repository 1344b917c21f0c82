/* Memory from malloc that a process keeps for as long as it lives.
 *
 * The only pointers to it lie in pages that leak sanitizers do not look at, and that are empty
 * after a fork (runtime/fork.h). So they are told of it, one block at a time. Where nobody is to be
 * told, as in tests of these units, what is lost is found. Any thread.
 */
#ifndef SHIM_CORE_HEAP_H
#define SHIM_CORE_HEAP_H

#include <stdatomic.h>
#include <stddef.h>

typedef void (*heap_listener)(const void *block);

/* NULL, or who is told. */
extern heap_listener _Atomic heap_told;

/* A block that was just allocated, or NULL; returned as it is. */
static inline void *heap_kept(void *block)
{
    heap_listener told = atomic_load_explicit(&heap_told, memory_order_relaxed);
    if (told != NULL && block != NULL)
        told(block);
    return block;
}

#endif
