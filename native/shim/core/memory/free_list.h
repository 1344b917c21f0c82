/* What a memory pool has free inside, as far as it can be known from outside.
 *
 * A driver gives and takes addresses; from these follows where a request would find room without
 * the pool growing: in what was freed and not given out again, and in the rest of the piece it grew
 * by last. It is a forecast, of a driver that takes what is free before it grows; whoever relies on
 * it looks afterwards. What has been forgotten, or never fitted the table, is merely not forecast.
 *
 * Freed memory is for its own stream at once, for others when the stream's work is known to be
 * done. No locks: the owner guards it (core/memory/pools.h). All zero is a valid beginning.
 */
#ifndef SHIM_CORE_MEMORY_FREE_LIST_H
#define SHIM_CORE_MEMORY_FREE_LIST_H

#ifndef VCUDA_CDEF
#include <stdbool.h>
#include <stdint.h>
#endif

enum { FREE_LIST_SIZE = 256, GAP_CHUNKS = 256, GAP_ALIGNMENT = 512 };

/* Of a gap that is for every stream; of one that is for none yet; and of one whose stream is gone,
 * though perhaps not its work. No stream's keys. */
#define GAP_ANY UINT64_C(0)
#define GAP_CLOSED UINT64_MAX
#define GAP_GONE (UINT64_MAX - 2)

struct gap {
    uint64_t start, end;
    uint64_t stream;
    uint64_t order; /* when it was opened, counted by the owner */
};

/* What the pool grew by at once: gaps join only inside of one. */
struct gap_chunk {
    uint64_t start, end;
    uint64_t live; /* allocations in it */
};

struct free_list {
    uint32_t count;
    uint32_t chunk_count;
    struct gap pieces[FREE_LIST_SIZE]; /* by address */
    struct gap_chunk chunks[GAP_CHUNKS];
};

/* The pool grew by so much, and gives out its beginning: before free_list_give(). */
void free_list_grown(struct free_list *list, uint64_t start, uint64_t bytes);

/* The driver is about to free something; it has, and what has not been given out again since is
 * open to its stream. */
void free_list_close(struct free_list *list, uint64_t start, uint64_t bytes);
void free_list_open(struct free_list *list, uint64_t start, uint64_t bytes, uint64_t stream,
                    uint64_t order);

/* The driver gave something out; it has not freed something after all. */
void free_list_give(struct free_list *list, uint64_t start, uint64_t bytes);
void free_list_keep(struct free_list *list, uint64_t start, uint64_t bytes);

/* The work of a stream is done that came before `order`; GAP_ANY: of all. */
void free_list_waited(struct free_list *list, uint64_t stream, uint64_t order);

/* A stream is gone, GAP_ANY: all are: what was freed there waits for all work to be done. */
void free_list_leave(struct free_list *list, uint64_t stream);

/* Is there room for `bytes` in this stream? firm: where something else is in use, too, so that the
 * pool cannot be giving it back just now. */
bool free_list_fit(struct free_list *list, uint64_t bytes, uint64_t stream, bool firm);

/* The pool gave something back: which of the chunks with nothing in use nobody knows, nor whether
 * a gap in no chunk we know was all of one. */
void free_list_shrunk(struct free_list *list);

#endif
