#include "cuda/time/allowance.h"

_Thread_local struct allowance allowance;

/* The launches made since the last payment are counted now. */
static void count(struct process *process)
{
    struct vcuda_meter *meter = &process->session.books.page->meters[allowance.device];
    atomic_fetch_add_explicit(&meter->launches, allowance.launches, memory_order_relaxed);
    allowance.launches = 0;
}

static void give_back(struct process *process)
{
    struct session *session = &process->session;
    const struct vcuda_limit *limit = &session->config->limits[allowance.device];
    limiter_settle(&session->books.page->meters[allowance.device],
                   limiter_terms(limit, allowance.taken_ns), -(int64_t)allowance.credit_ns);
}

void allowance_turn(struct process *process, unsigned device)
{
    uint64_t epoch = process_epoch(process);
    bool own = allowance.epoch == epoch;
    if (own)
        count(process);
    if (own && allowance.device == device)
        return;
    if (own)
        give_back(process);
    allowance = (struct allowance){.epoch = epoch, .device = device};
}

/* Between a half and all of it: launches that recur in a pattern must not end every allowance with
 * the same kind. */
static uint64_t random_part(uint64_t size, uint64_t now)
{
    uint64_t chance = (now * UINT64_C(0x9e3779b97f4a7c15)) >> 44; /* 20 bits */
    return size / 2 + (size / 2 * chance >> 20);
}

/* Enough, and yet not launched from it: its kind is not known, say. */
uint64_t allowance_ask_one(uint64_t cost)
{
    return cost <= allowance.credit_ns ? 0 : cost - allowance.credit_ns;
}

uint64_t allowance_ask(struct limiter_terms terms, uint64_t now, uint64_t cost)
{
    uint64_t size = limiter_allowance(terms, allowance.size_ns, now - allowance.taken_ns);
    uint64_t part = random_part(size, now), missing = allowance_ask_one(cost);
    return missing == 0 || part < missing ? missing : part;
}

uint64_t allowance_take(struct limiter_terms terms, uint64_t now, uint64_t paid, uint64_t cost)
{
    uint64_t done = allowance.granted_ns - allowance.credit_ns + cost;
    allowance.size_ns = limiter_allowance(terms, allowance.size_ns, now - allowance.taken_ns);
    allowance.taken_ns = now;
    allowance.price = terms.price;
    allowance.credit_ns += paid - cost;
    allowance.granted_ns = allowance.credit_ns;
    allowance.launches++;
    return done;
}
