#include "core/time/gang.h"

/* A device's word: how many collectives it has launched, and when the last one; both modulo 65536.
 * Relaxed throughout: each word orders nothing but itself, and none is relied on. */
static uint32_t get(const struct gang *gang, uint32_t device)
{
    return atomic_load_explicit(&gang->books->collectives[device], memory_order_relaxed);
}

static bool is_fresh(const struct gang *gang, uint32_t word)
{
    uint16_t age = (uint16_t)((gang->now >> GANG_STAMP_BITS) - word);
    return word != 0 && age <= GANG_FRESH_NS >> GANG_STAMP_BITS;
}

/* By how many collectives it is ahead of this device. */
static int ahead(const struct gang *gang, uint32_t word)
{
    return (int16_t)((word >> 16) - gang->collectives);
}

static bool belongs(const struct gang *gang, uint32_t device)
{
    uint32_t word = get(gang, device);
    int distance = ahead(gang, word);
    return device != gang->device && is_fresh(gang, word) && -GANG_NEAR <= distance &&
           distance <= GANG_NEAR;
}

bool gang_any(const struct gang *gang)
{
    if (gang->now - gang->last > GANG_FRESH_NS)
        return false;
    for (uint32_t device = 0; device < gang->config->device_count; device++)
        if (belongs(gang, device))
            return true;
    return false;
}

bool gang_behind(const struct gang *gang)
{
    for (uint32_t device = 0; device < gang->config->device_count; device++)
        if (belongs(gang, device) && ahead(gang, get(gang, device)) > 0)
            return true;
    return false;
}

static uint64_t pause_of(const struct gang *gang, uint32_t device, bool stopped)
{
    struct limiter_terms terms = limiter_terms(&gang->config->limits[device], gang->now);
    uint64_t bound = gang->now + terms.burst_ns - (stopped ? terms.burst_ns / GANG_STOPS : 0);
    uint64_t clock =
        atomic_load_explicit(&gang->books->meters[device].virtual_time, memory_order_relaxed);
    return clock > bound ? clock - bound : 0;
}

uint64_t gang_pause(const struct gang *gang, bool stopped)
{
    uint64_t longest = 0;
    for (uint32_t device = 0; device < gang->config->device_count; device++) {
        if (device != gang->device && !belongs(gang, device))
            continue;
        uint64_t pause = pause_of(gang, device, stopped);
        longest = pause > longest ? pause : longest;
    }
    return longest;
}

void gang_tell(const struct gang *gang)
{
    uint32_t word = gang->collectives << 16 | (uint16_t)(gang->last >> GANG_STAMP_BITS);
    atomic_store_explicit(&gang->books->collectives[gang->device], word, memory_order_relaxed);
}
