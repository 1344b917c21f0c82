/* The manager's moves on the two regions: every word it changes under running processes.
 *
 * The manager is one thread in one process, so these need order but no lock. A crash between any
 * two stores leaves books that the next manager can put right: a slot counts as taken only when its
 * pid is there, and a pid goes only when the slot's bytes are gone.
 */
#ifndef SHIM_CORE_REGION_H
#define SHIM_CORE_REGION_H

#include "vcuda_region.h"

/* Change what may be used of one device. Call region_config_publish() after the last change. */
void region_limit_store(struct vcuda_config *config, uint32_t device, uint64_t memory_bytes,
                        uint32_t core_percent, uint32_t core_ceiling);

/* Name one more device, whose limit is stored already. `uuid` is 16 bytes. Returns 0, or -ENOSPC.
 */
int region_device_add(struct vcuda_config *config, const uint8_t *uuid);

/* Tell running processes that words of the configuration have changed. */
void region_config_publish(struct vcuda_config *config);

/* Take a slot for a process: empty, and its own from before if it had one (exec keeps the pid and
 * drops the memory). `inner_pid` is what the process calls itself, 0 if that is not known.
 * Returns the slot, or -ENOSPC and nothing changed. Then look for its alive lock (peers.h): a slot
 * that a peer is emptying must be freed, and one after it taken. */
int region_slot_claim(struct vcuda_books *books, uint32_t pid, uint64_t start_time,
                      uint32_t inner_pid);

/* The same, none below `first`. */
int region_slot_claim_from(struct vcuda_books *books, uint32_t first, uint32_t pid,
                           uint64_t start_time, uint32_t inner_pid);

/* Empty and free a slot, if it is still this process's. Returns 0, or -ESTALE if it is not. */
int region_slot_release(struct vcuda_books *books, uint32_t slot, uint32_t pid,
                        uint64_t start_time);

/* Empty the slot of an owner that is dead but for what it exported: other processes may hold that
 * still, and are charged for it when they are measured. Until then it is charged here, as the
 * driver's own; then region_slot_release(). Returns 1 if there is any, else 0. */
int region_slot_leave(struct vcuda_books *books, uint32_t slot, uint32_t pid, uint64_t start_time,
                      uint32_t devices);

/* Empty and free a slot, whoever has it: for a manager that starts on the books of a dead one. */
void region_slot_free(struct vcuda_books *books, uint32_t slot);

/* Say what the driver is known to take for one context. */
void region_context_store(struct vcuda_config *config, uint32_t device, uint64_t context_bytes);

/* Whether a slot's owner moves memory: bits of VCUDA_ACTIVITY_UNDER_WAY while it does, and another
 * value after each time. */
uint32_t region_activity(const struct vcuda_books *books, uint32_t slot);

/* A number that changes when a process of one of so many containers comes, goes, launches or moves
 * memory, and when a measurement of it is entered. */
uint64_t region_moves(const struct vcuda_books *const *books, uint32_t count);

/* Of a device of which a measurement does not tell. */
#define REGION_UNTOLD UINT64_MAX

/* What the driver's figure of a process contains: -1 if that is not known, else 0 or 1. */
struct region_figure {
    int managed;  /* the process's managed memory, */
    int imported; /* other processes' memory that it has opened */
};

/* Enter a measurement that began when a slot's activity was `mark`: `measured[]` bytes on each of
 * all `devices`, of which `used` are not the driver's own. Where it is not known what the figure
 * contains, the driver's own bytes stay as they were, as near as any answer allows. Returns 0, or
 * -EBUSY and nothing changed: memory has moved since. That is looked for after `used` is read, and
 * after the owner can see that it is: of a measurement and an owner that begins to move memory, one
 * sees the other. */
int region_overheads_enter(struct vcuda_books *books, uint32_t slot, uint32_t mark,
                           const uint64_t *measured, uint32_t devices, struct region_figure figure);

/* What a slot's owner estimates of a device. */
uint64_t region_estimate(const struct vcuda_books *books, uint32_t device, uint32_t slot);

/* That `estimate` was there when a slot's activity was `mark`; a measurement that began then is
 * entered for all processes of the container: so it goes. An owner that goes on drops it itself;
 * one that does nothing more would keep what it let go of charged to its peers. If its memory moves
 * meanwhile it stays, or comes back: too much for a while is charged, never too little. */
void region_estimate_drop(struct vcuda_books *books, uint32_t device, uint32_t slot, uint32_t mark,
                          uint64_t estimate);

/* Of a slot: managed bytes, and those of other processes that are open; 0 where nobody says. */
uint64_t region_managed(struct vcuda_books *books, uint32_t device, uint32_t slot,
                        uint32_t devices);
uint64_t region_imported(struct vcuda_books *books, uint32_t device, uint32_t slot,
                         uint32_t devices);

/* A slot's overheads are all entered, by one measurement. */
void region_sample_publish(struct vcuda_books *books, uint32_t slot);

/* Bytes one slot holds of a device, the driver's own share in it included. */
uint64_t region_slot_bytes(const struct vcuda_books *books, uint32_t device, uint32_t slot);

/* Bytes all slots hold of a device. Not a snapshot: the words are read one after another. */
uint64_t region_device_bytes(const struct vcuda_books *books, uint32_t device);

#endif
