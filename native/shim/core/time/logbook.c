#include "core/time/logbook.h"

#include "core/time/limiter.h"

#include <stdbool.h>

static struct vcuda_logged *entry_of(struct vcuda_logbook *logbook, uint64_t ticket)
{
    return &logbook->of[ticket % VCUDA_LOGGED];
}

static void store(VCUDA_ATOMIC(uint64_t) * word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

struct logged logbook_open(struct vcuda_logbook *logbook, uint32_t slot, uint64_t now,
                           uint64_t paid_ns)
{
    uint64_t ticket = atomic_fetch_add_explicit(&logbook->last, 1, memory_order_relaxed) + 1;
    struct vcuda_logged *entry = entry_of(logbook, ticket);
    store(&entry->ticket, 0);
    store(&entry->slot, slot);
    store(&entry->begun, now);
    store(&entry->ended, 0);
    store(&entry->charged_ns, paid_ns);
    atomic_fetch_add_explicit(&logbook->charged_ns, paid_ns, memory_order_relaxed);
    /* Release: who reads the ticket reads what belongs to it. */
    atomic_store_explicit(&entry->ticket, ticket, memory_order_release);
    return (struct logged){ticket, paid_ns};
}

/* Its entry, if that is still its own and open. */
static struct vcuda_logged *open_entry(struct vcuda_logbook *logbook, struct logged logged)
{
    if (logged.ticket == 0)
        return NULL;
    struct vcuda_logged *entry = entry_of(logbook, logged.ticket);
    bool own = atomic_load_explicit(&entry->ticket, memory_order_relaxed) == logged.ticket;
    bool open = atomic_load_explicit(&entry->ended, memory_order_relaxed) == 0;
    return own && open ? entry : NULL;
}

static void end_entry(struct vcuda_logged *entry, struct logbook_end end)
{
    store(&entry->begun, end.begun);
    store(&entry->cost_ns, end.cost_ns);
    store(&entry->charged_ns, end.charged_ns);
    /* Release: who reads that it has ended reads the rest. */
    atomic_store_explicit(&entry->ended, end.ended, memory_order_release);
}

/* One that passes for short was there for longer than a neighbour's slice explains. */
static bool seems_long(struct logbook_end end)
{
    return end.cost_ns >= LIMITER_SLICE_NS ||
           end.ended > end.begun + end.cost_ns + LIMITER_SLICE_MOST_NS;
}

void logbook_close(struct vcuda_logbook *logbook, struct logged logged, uint32_t slot,
                   struct logbook_end end)
{
    bool is_long = seems_long(end);
    if (logged.ticket == 0 && is_long) /* nobody could know */
        logged = logbook_open(logbook, slot, end.begun, 0);
    if (logged.ticket == 0)
        return;
    if (!is_long)
        end.charged_ns = 0;
    atomic_fetch_add_explicit(&logbook->charged_ns, end.charged_ns - logged.paid_ns,
                              memory_order_relaxed);
    struct vcuda_logged *entry = open_entry(logbook, logged);
    if (entry != NULL)
        end_entry(entry, end);
}

void logbook_cancel(struct vcuda_logbook *logbook, struct logged logged)
{
    struct vcuda_logged *entry = open_entry(logbook, logged);
    uint64_t begun = entry == NULL ? 0 : atomic_load_explicit(&entry->begun, memory_order_relaxed);
    if (entry != NULL)
        end_entry(entry, (struct logbook_end){begun, begun, 0, 0});
}
