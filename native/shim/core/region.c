#include "core/region.h"

#include "core/memory/slot.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

void region_limit_store(struct vcuda_config *config, uint32_t device, uint64_t memory_bytes,
                        uint32_t core_percent, uint32_t core_ceiling)
{
    struct vcuda_limit *limit = &config->limits[device];
    /* relaxed: each word stands alone; the order is made by region_config_publish() */
    atomic_store_explicit(&limit->memory_bytes, memory_bytes, memory_order_relaxed);
    atomic_store_explicit(&limit->core_percent, core_percent, memory_order_relaxed);
    atomic_store_explicit(&limit->core_ceiling, core_ceiling, memory_order_relaxed);
}

int region_device_add(struct vcuda_config *config, const uint8_t *uuid)
{
    uint32_t device = config->device_count;
    if (device >= VCUDA_DEVICES)
        return -ENOSPC;
    memcpy(config->limits[device].uuid, uuid, sizeof config->limits[device].uuid);
    /* a reader that sees the count sees the uuid and the limit */
    atomic_thread_fence(memory_order_release);
    config->device_count = device + 1;
    return 0;
}

void region_config_publish(struct vcuda_config *config)
{
    /* release: pairs with the shim's acquire load of the generation */
    atomic_fetch_add_explicit(&config->generation, 1, memory_order_release);
}

static uint32_t slot_pid(const struct vcuda_books *books, uint32_t slot)
{
    /* relaxed: the manager alone writes it */
    return atomic_load_explicit(&books->slots[slot].pid, memory_order_relaxed);
}

static uint32_t slots_used(const struct vcuda_books *books)
{
    /* acquire: pairs with slot_take(), for readers outside the manager */
    uint32_t limit = atomic_load_explicit(&books->slot_limit, memory_order_acquire);
    return limit < VCUDA_SLOTS ? limit : VCUDA_SLOTS;
}

void region_slot_free(struct vcuda_books *books, uint32_t slot)
{
    for (uint32_t device = 0; device < VCUDA_DEVICES; device++) {
        atomic_store_explicit(&books->used[device][slot], 0, memory_order_relaxed);
        atomic_store_explicit(&books->overhead[device][slot], 0, memory_order_relaxed);
        atomic_store_explicit(&books->context[device][slot], 0, memory_order_relaxed);
        atomic_store_explicit(&books->pending[device][slot], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&books->activity[slot], 0, memory_order_relaxed);
    atomic_store_explicit(&books->samples[slot], 0, memory_order_relaxed);
    atomic_store_explicit(&books->looks[slot], 0, memory_order_relaxed);
    atomic_store_explicit(&books->inner_pid[slot], 0, memory_order_relaxed);
    atomic_store_explicit(&books->slots[slot].flags, 0, memory_order_relaxed);
    /* release: who sees the slot free sees it empty */
    atomic_store_explicit(&books->slots[slot].pid, 0, memory_order_release);
}

static bool is_owner(const struct vcuda_books *books, uint32_t slot, uint32_t pid,
                     uint64_t start_time)
{
    uint64_t started = atomic_load_explicit(&books->slots[slot].start_time, memory_order_relaxed);
    return slot_pid(books, slot) == pid && started == start_time;
}

int region_slot_release(struct vcuda_books *books, uint32_t slot, uint32_t pid, uint64_t start_time)
{
    if (!is_owner(books, slot, pid, start_time))
        return -ESTALE;
    region_slot_free(books, slot);
    return 0;
}

int region_slot_leave(struct vcuda_books *books, uint32_t slot, uint32_t pid, uint64_t start_time,
                      uint32_t devices)
{
    uint64_t stays = 0;
    if (!is_owner(books, slot, pid, start_time))
        return 0;
    for (uint32_t device = 0; device < devices; device++) {
        uint64_t exported = slot_exported(books, device, slot, devices);
        /* before `used` is emptied: no sum finds neither */
        atomic_store(&books->context[device][slot], exported);
        atomic_store(&books->used[device][slot], 0);
        atomic_store(&books->overhead[device][slot], 0);
        atomic_store(&books->pending[device][slot], 0);
        stays = slot_add(stays, exported);
    }
    /* peers see that something has changed, and may ask for a measurement */
    atomic_store(&books->activity[slot], VCUDA_ACTIVITY_BEGUN);
    return stays > 0;
}

/* Of those from `first` on: the process's own, else the lowest free one, else VCUDA_SLOTS. */
static uint32_t slot_find(const struct vcuda_books *books, uint32_t first, uint32_t pid)
{
    uint32_t used = slots_used(books);
    uint32_t found = used;
    for (uint32_t slot = used; slot-- > first;) {
        uint32_t owner = slot_pid(books, slot);
        if (owner == pid)
            return slot;
        if (owner == 0)
            found = slot;
    }
    return found;
}

static void slot_take(struct vcuda_books *books, uint32_t slot, uint32_t pid, uint64_t start_time,
                      uint32_t inner_pid)
{
    if (slot >= slots_used(books))
        /* release: before the owner can reserve, so that no sum misses it */
        atomic_store_explicit(&books->slot_limit, slot + 1, memory_order_release);
    atomic_store_explicit(&books->slots[slot].start_time, start_time, memory_order_relaxed);
    atomic_store_explicit(&books->inner_pid[slot], inner_pid, memory_order_relaxed);
    /* release: a pid never stands beside another process's start_time or inner pid */
    atomic_store_explicit(&books->slots[slot].pid, pid, memory_order_release);
}

int region_slot_claim_from(struct vcuda_books *books, uint32_t first, uint32_t pid,
                           uint64_t start_time, uint32_t inner_pid)
{
    uint32_t slot = slot_find(books, first, pid);
    if (slot >= VCUDA_SLOTS)
        return -ENOSPC;
    region_slot_free(books, slot);
    slot_take(books, slot, pid, start_time, inner_pid);
    return (int)slot;
}

int region_slot_claim(struct vcuda_books *books, uint32_t pid, uint64_t start_time,
                      uint32_t inner_pid)
{
    return region_slot_claim_from(books, 0, pid, start_time, inner_pid);
}

void region_context_store(struct vcuda_config *config, uint32_t device, uint64_t context_bytes)
{
    /* relaxed: it stands alone */
    atomic_store_explicit(&config->limits[device].context_bytes, context_bytes,
                          memory_order_relaxed);
}

uint32_t region_activity(const struct vcuda_books *books, uint32_t slot)
{
    return atomic_load(&books->activity[slot]);
}

/* As FNV-1a does, a word at a time. Relaxed: it only says whether to look. */
#define MIX(hash, word)                                                                            \
    (hash = (hash ^ atomic_load_explicit(&(word), memory_order_relaxed)) * UINT64_C(1099511628211))

static uint64_t moves_of(const struct vcuda_books *books, uint64_t hash)
{
    uint32_t used = slots_used(books);
    for (uint32_t slot = 0; slot < used; slot++) {
        MIX(hash, books->slots[slot].pid);
        MIX(hash, books->slots[slot].flags);
        MIX(hash, books->activity[slot]);
        MIX(hash, books->looks[slot]);
    }
    for (uint32_t device = 0; device < VCUDA_DEVICES; device++) {
        MIX(hash, books->meters[device].charged_ns);
        MIX(hash, books->meters[device].throttled_ns);
        MIX(hash, books->meters[device].launches);
        MIX(hash, books->meters[device].memory_denied);
        MIX(hash, books->meters[device].throttled);
    }
    return hash;
}

uint64_t region_moves(const struct vcuda_books *const *books, uint32_t count)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (uint32_t at = 0; at < count; at++)
        hash = moves_of(books[at], hash);
    return hash;
}

static void raise_peak(struct vcuda_meter *meter, uint64_t total)
{
    uint64_t peak = atomic_load_explicit(&meter->memory_peak, memory_order_relaxed);
    while (peak < total && !atomic_compare_exchange_weak(&meter->memory_peak, &peak, total))
        ;
}

/* What a process says of a device, at one moment. */
struct said {
    uint64_t used, managed, imported;
};

static uint64_t less(uint64_t bytes, uint64_t by)
{
    return bytes > by ? bytes - by : 0;
}

/* Of what was measured, the driver's own. Example: 300 MiB of a context and 1 GiB managed. If the
 * figure is 300 MiB, managed memory is not in it; if it is 1.3 GiB, it is; the driver's own is the
 * same. If one does not know and it was 300 MiB before, it lies between 0 and 300, or between 300
 * and 1.3 GiB: it is 300 MiB still. */
static uint64_t own_bytes(uint64_t measured, struct said said, struct region_figure figure,
                          uint64_t before)
{
    uint64_t most = less(measured, said.used - said.managed), least;
    least = less(most, figure.managed != 0 ? said.managed : 0);
    least = less(least, figure.imported != 0 ? said.imported : 0);
    most = less(most, figure.managed == 1 ? said.managed : 0);
    most = less(most, figure.imported == 1 ? said.imported : 0);
    return before < least ? least : before > most ? most : before;
}

static void overhead_store(struct vcuda_books *books, uint32_t device, uint32_t slot,
                           uint64_t measured, struct said said, struct region_figure figure)
{
    if (measured == REGION_UNTOLD)
        return;
    uint64_t before = slot_driver_bytes(books, device, slot);
    atomic_store(&books->overhead[device][slot], own_bytes(measured, said, figure, before));
    raise_peak(&books->meters[device], region_device_bytes(books, device));
}

static uint64_t beside(VCUDA_ATOMIC(uint64_t) words[VCUDA_DEVICES][VCUDA_SLOTS], uint32_t device,
                       uint32_t slot, uint32_t devices)
{
    VCUDA_ATOMIC(uint64_t) *word = slot_beside(words, device, slot, devices);
    return word == NULL ? 0 : atomic_load(word);
}

uint64_t region_managed(struct vcuda_books *books, uint32_t device, uint32_t slot, uint32_t devices)
{
    uint64_t managed = beside(books->used, device, slot, devices);
    uint64_t used = atomic_load(&books->used[device][slot]);
    return managed < used ? managed : used;
}

uint64_t region_imported(struct vcuda_books *books, uint32_t device, uint32_t slot,
                         uint32_t devices)
{
    return beside(books->context, device, slot, devices);
}

int region_overheads_enter(struct vcuda_books *books, uint32_t slot, uint32_t mark,
                           const uint64_t *measured, uint32_t devices, struct region_figure figure)
{
    struct said said[VCUDA_DEVICES];
    if (atomic_load(&books->activity[slot]) != mark)
        return -EBUSY; /* then the owner need not hear of it */
    atomic_fetch_add(&books->looks[slot], 1);
    for (uint32_t device = 0; device < devices; device++)
        said[device] = (struct said){atomic_load(&books->used[device][slot]),
                                     region_managed(books, device, slot, devices),
                                     region_imported(books, device, slot, devices)};
    if (atomic_load(&books->activity[slot]) != mark)
        return -EBUSY;
    for (uint32_t device = 0; device < devices; device++)
        overhead_store(books, device, slot, measured[device], said[device], figure);
    return 0;
}

uint64_t region_estimate(const struct vcuda_books *books, uint32_t device, uint32_t slot)
{
    return atomic_load(&books->context[device][slot]);
}

void region_estimate_drop(struct vcuda_books *books, uint32_t device, uint32_t slot, uint32_t mark,
                          uint64_t estimate)
{
    if (estimate == 0 || atomic_load(&books->activity[slot]) != mark)
        return;
    if (atomic_compare_exchange_strong(&books->context[device][slot], &estimate, 0) &&
        atomic_load(&books->activity[slot]) != mark) /* it may be a new one of the same size */
        atomic_fetch_add(&books->context[device][slot], estimate);
}

void region_sample_publish(struct vcuda_books *books, uint32_t slot)
{
    /* release: who sees the count sees the overheads */
    atomic_fetch_add_explicit(&books->samples[slot], 1, memory_order_release);
}

uint64_t region_slot_bytes(const struct vcuda_books *books, uint32_t device, uint32_t slot)
{
    return slot_bytes(books, device, slot);
}

uint64_t region_device_bytes(const struct vcuda_books *books, uint32_t device)
{
    uint64_t total = 0;
    uint32_t used = slots_used(books);
    for (uint32_t slot = 0; slot < used; slot++)
        total += region_slot_bytes(books, device, slot);
    return total;
}
