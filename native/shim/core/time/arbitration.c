#include "core/time/arbitration.h"

#include <stdbool.h>

/* Relaxed throughout: each word orders nothing but itself, and none is relied on. */
static uint64_t get(const VCUDA_ATOMIC(uint64_t) * word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void set(VCUDA_ATOMIC(uint64_t) * word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static bool has_turn(uint64_t turn, uint32_t slot)
{
    return turn == 0 || (turn & ARBITRATION_SLOT_MASK) == slot;
}

/* Does a process wait that has had less? */
static bool yields(const struct vcuda_meter *meter, const struct arbitration_wait *wait)
{
    uint64_t least = get(&meter->waiting_served);
    return least != 0 && least < wait->served;
}

/* At a high share a burst takes long to be refused; then it ends by its time. */
static bool in_burst(const struct vcuda_meter *meter, struct limiter_terms terms,
                     const struct arbitration_wait *wait, uint64_t now)
{
    return !wait->refused && now < get(&meter->turn_since) + ARBITRATION_BURSTS * terms.burst_ns;
}

/* Where the clock has to be. Who has the turn goes on with its burst. */
static int64_t lead(const struct vcuda_meter *meter, struct limiter_terms terms,
                    const struct arbitration_wait *wait, bool own, uint64_t now)
{
    if (!(own && in_burst(meter, terms, wait, now)) && yields(meter, wait))
        return -(int64_t)(terms.burst_ns / 2);
    return own || terms.lead_ns < 0 ? terms.lead_ns : 0;
}

static void enlist(struct vcuda_meter *meter, struct arbitration_wait *wait)
{
    uint64_t least = get(&meter->waiting_served);
    wait->refused = true;
    while ((least == 0 || wait->served < least) &&
           !atomic_compare_exchange_weak_explicit(&meter->waiting_served, &least, wait->served,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* Whoever was to go first has gone, or has missed it; the others say so when they look again.
 * drained: when what was charged before has ended. */
static void take(struct vcuda_meter *meter, const struct arbitration_wait *wait, uint64_t now,
                 uint64_t drained)
{
    uint64_t turn = get(&meter->turn);
    bool own = has_turn(turn, wait->slot);
    if (wait->refused || !own) {
        set(&meter->waiting_served, 0);
        set(&meter->turn_since, now);
    }
    if (!own) {
        set(&meter->held_until, 0);
        set(&meter->alone_since, drained > now ? drained : now);
    }
    set(&meter->turn, (now & ~(uint64_t)ARBITRATION_SLOT_MASK) | wait->slot);
}

/* Half of what is owed: if each launch adds the same, what is owed grows until it is waited for. */
static uint64_t patience(uint64_t owed)
{
    return (uint64_t)ARBITRATION_PATIENCE_S * 1000000000 + owed / 2;
}

/* Neither this launch nor any other of the container has got through for long. */
static bool impatient(const struct vcuda_meter *meter, uint64_t turn, struct arbitration_wait *wait,
                      uint64_t now)
{
    uint64_t since = turn > wait->begun ? turn : wait->begun;
    if (since != wait->since) {
        uint64_t clock = get(&meter->virtual_time);
        wait->since = since;
        wait->owed = clock > now ? clock - now : 0;
    }
    return now > since && now - since >= patience(wait->owed);
}

/* Another holds the turn, for a moment as a rule: look again soon, and then less often. Whoever is
 * next looks sooner than the others, who wait for it. */
static uint64_t look(const struct vcuda_meter *meter, const struct arbitration_wait *wait,
                     uint64_t now)
{
    uint64_t last = yields(meter, wait) ? ARBITRATION_LOOK_NS : ARBITRATION_LOOK_NEXT_NS;
    uint64_t pause = (now - wait->begun) / 4;
    return pause < ARBITRATION_LOOK_FIRST_NS ? ARBITRATION_LOOK_FIRST_NS
                                             : (pause < last ? pause : last);
}

/* Who stands back does not sleep through the others' having gone: when the clock is where the next
 * one waits for it, look how they get on. */
static uint64_t stand_back(const struct vcuda_meter *meter, struct limiter_terms terms,
                           const struct arbitration_wait *wait, uint64_t now, uint64_t pause)
{
    uint64_t behind = terms.lead_ns < 0 ? (uint64_t)-terms.lead_ns : 0;
    uint64_t soon = (pause > behind ? pause - behind : 0) + look(meter, wait, now);
    return behind > 0 && soon < pause ? soon : pause;
}

static void raise(VCUDA_ATOMIC(uint64_t) * word, uint64_t least)
{
    uint64_t known = get(word);
    while (known < least && !atomic_compare_exchange_weak_explicit(
                                word, &known, least, memory_order_relaxed, memory_order_relaxed))
        ;
}

uint64_t arbitration_served(const VCUDA_ATOMIC(uint64_t) * latest, VCUDA_ATOMIC(uint64_t) * served,
                            struct limiter_terms terms)
{
    uint64_t credit = get(served) == 0 ? 0 : ARBITRATION_BURSTS * terms.burst_ns;
    raise(served, get(latest) > credit ? get(latest) - credit : 1);
    return get(served);
}

void arbitration_serve(VCUDA_ATOMIC(uint64_t) * latest, VCUDA_ATOMIC(uint64_t) * served,
                       const struct arbitration_wait *wait, uint64_t cost)
{
    raise(latest, wait->served);
    atomic_fetch_add_explicit(served, cost, memory_order_relaxed);
}

uint64_t arbitration_admit(struct vcuda_meter *meter, struct limiter_terms terms,
                           struct arbitration_wait *wait, uint64_t now, uint64_t cost)
{
    uint64_t turn = get(&meter->turn), drained = get(&meter->drained_at), pause = 0;
    if (wait->urgent || impatient(meter, turn, wait, now)) {
        limiter_charge(meter, terms, now, cost);
    } else {
        bool own = has_turn(turn, wait->slot);
        terms.lead_ns = lead(meter, terms, wait, own, now);
        pause = !own && get(&meter->held_until) > now ? look(meter, wait, now)
                                                      : limiter_admit(meter, terms, now, cost);
        pause = stand_back(meter, terms, wait, now, pause);
    }
    if (pause == 0)
        take(meter, wait, now, drained);
    else
        enlist(meter, wait);
    return pause;
}

void arbitration_hold(struct vcuda_meter *meter, uint32_t slot, uint64_t now, uint8_t holding)
{
    uint64_t until = holding ? now + ARBITRATION_HOLD_NS : 0;
    if (has_turn(get(&meter->turn), slot) && (holding || get(&meter->held_until) != 0))
        set(&meter->held_until, until);
}

uint8_t arbitration_alone(const struct vcuda_meter *meter, uint32_t slot, uint64_t since)
{
    return has_turn(get(&meter->turn), slot) && get(&meter->alone_since) <= since;
}
