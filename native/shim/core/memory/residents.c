#include "core/memory/residents.h"

#include "core/memory/slot.h"

#include <string.h>

static uint32_t slots_of(const struct vcuda_books *books)
{
    /* acquire: pairs with the manager's release at claim */
    uint32_t limit = atomic_load_explicit(&books->slot_limit, memory_order_acquire);
    return limit < VCUDA_SLOTS ? limit : VCUDA_SLOTS;
}

/* The process of a slot by one of its names, 0 for a free slot. What it calls itself may not be
 * known, and is then what the host calls it. */
static uint32_t name_of(const struct vcuda_books *books, uint32_t slot,
                        enum residents_naming naming)
{
    /* acquire: pairs with the manager's release at claim; the other names are there by then */
    uint32_t pid = atomic_load_explicit(&books->slots[slot].pid, memory_order_acquire);
    uint32_t inner = atomic_load_explicit(&books->inner_pid[slot], memory_order_relaxed);
    return naming == RESIDENTS_BY_HOST || pid == 0 || inner == 0 ? pid : inner;
}

/* The slot of a process, or VCUDA_SLOTS. */
static uint32_t slot_of(const struct vcuda_books *books, uint32_t pid, enum residents_naming naming)
{
    uint32_t slots = slots_of(books);
    for (uint32_t slot = 0; pid != 0 && slot < slots; slot++)
        if (name_of(books, slot, naming) == pid)
            return slot;
    return VCUDA_SLOTS;
}

static char *entry_at(const struct residents *residents, unsigned index)
{
    return (char *)residents->list + index * residents->layout->size;
}

static uint32_t pid_at(const struct residents *residents, unsigned index)
{
    uint32_t pid;
    memcpy(&pid, entry_at(residents, index) + residents->layout->pid, sizeof pid);
    return pid;
}

/* A driver that translates lists nobody but processes we know by their own names. */
enum residents_naming residents_naming(const struct residents *residents)
{
    for (unsigned index = 0; index < residents->count; index++) {
        uint32_t pid = pid_at(residents, index);
        if (slot_of(residents->books, pid, RESIDENTS_BY_CALLER) == VCUDA_SLOTS)
            return RESIDENTS_BY_HOST;
    }
    return RESIDENTS_BY_CALLER;
}

/* Write what the container sees of the process of a slot. */
static void describe(struct residents *residents, uint32_t slot, char *entry)
{
    uint32_t pid = name_of(residents->books, slot, RESIDENTS_BY_CALLER);
    memcpy(entry + residents->layout->pid, &pid, sizeof pid);
    if (residents->layout->has_memory && residents->device >= 0) {
        uint64_t bytes = slot_bytes(residents->books, (unsigned)residents->device, slot);
        memcpy(entry + residents->layout->memory, &bytes, sizeof bytes);
    }
    residents->listed[slot] = true;
}

void residents_keep(struct residents *residents)
{
    enum residents_naming naming = residents_naming(residents);
    unsigned kept = 0;
    for (unsigned index = 0; index < residents->count; index++) {
        uint32_t slot = slot_of(residents->books, pid_at(residents, index), naming);
        if (slot == VCUDA_SLOTS)
            continue;
        char *entry = entry_at(residents, kept++);
        memmove(entry, entry_at(residents, index), residents->layout->size);
        describe(residents, slot, entry);
    }
    residents->count = kept;
}

void residents_add_hidden(struct residents *residents)
{
    uint32_t slots = residents->device < 0 ? 0 : slots_of(residents->books);
    for (uint32_t slot = 0; slot < slots; slot++) {
        if (residents->listed[slot] || name_of(residents->books, slot, RESIDENTS_BY_HOST) == 0 ||
            slot_bytes(residents->books, (unsigned)residents->device, slot) == 0)
            continue;
        char *entry = entry_at(residents, residents->count++);
        memset(entry, 0xff, residents->layout->size);
        describe(residents, slot, entry);
    }
}

uint32_t residents_pid_of(const struct vcuda_books *books, uint32_t shown,
                          enum residents_naming naming)
{
    uint32_t slot = slot_of(books, shown, RESIDENTS_BY_CALLER);
    return slot == VCUDA_SLOTS ? 0 : name_of(books, slot, naming);
}
