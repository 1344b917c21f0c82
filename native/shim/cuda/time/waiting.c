#include "cuda/time/waiting.h"

#include "cuda/time/allowance.h"

enum {
    PAUSE_LAST_NS = MILLISECOND,
    OTHERS_NS = 100 * MILLISECOND,  /* patience with the measurement of other kinds */
    CROWD_NS = 250 * MILLISECOND,   /* patience with work in flight */
    SAMPLING_NS = 20 * MILLISECOND, /* patience with the edges of a window */
    IN_FLIGHT_NS = 20 * MILLISECOND,
    LONG_NS = LIMITER_ALLOWANCE_NS / 2,
    PATIENCE_NS = 1000 * MILLISECOND, /* who waited so long may go without GPU time for it, or
                                         without its gang */
    OTHERS_LAST = 4,                  /* launches in other streams that a mark does not know of */
};

static const uint64_t unknown_ns = UINT64_C(2000000000); /* patience with one's own kind */

static uint64_t longer_pause(struct wait *wait)
{
    uint64_t pause = wait->pause;
    wait->pause = pause * 2 < PAUSE_LAST_NS ? pause * 2 : PAUSE_LAST_NS;
    return pause;
}

/* Is this worth waiting for, and for how long? A kind that is measured for the first time should
 * not run on before its cost is known, unless that can be guessed. Nobody waits twice for what does
 * not end. */
static uint64_t await_measurement(struct launch *launch, struct wait *wait)
{
    struct flights *flights = &wait->process->timing.flights;
    bool own = flights_measure(flights, launch->device, wait->key);
    if (own ? cost_familiar(&wait->process->costs) : !flights_full(flights))
        return 0;
    if (wait->now - wait->turn.begun < (own ? unknown_ns : OTHERS_NS))
        return longer_pause(wait);
    flights_give_up(flights, launch->device, own ? wait->key : 0, wait->in_flight);
    if (own)
        cost_presume(&wait->process->costs, wait->key, wait->now);
    return 0;
}

uint64_t waiting_room(struct limiter_terms terms)
{
    return terms.burst_ns > IN_FLIGHT_NS ? terms.burst_ns : IN_FLIGHT_NS;
}

/* By what was charged; or, for that may have been too little, by what is not done yet though it had
 * time enough at this rate. */
bool waiting_crowded(struct wait *wait, unsigned parts)
{
    const struct flights *flights = &wait->process->timing.flights;
    uint64_t most = waiting_room(wait->terms);
    if (in_flight_work(wait->in_flight) >= most / parts)
        return true;
    if (!flights_any(flights))
        return false;
    if (wait->look.context == 0)
        wait->look.context = timing_context();
    uint64_t oldest = flights_oldest(flights, wait->look.context);
    return oldest < wait->now &&
           wait->now - oldest > limiter_stretch(most, wait->terms.rate_ppm) / parts;
}

static uint64_t await_room(struct launch *launch, struct wait *wait)
{
    if (!waiting_crowded(wait, 1))
        return 0;
    if (wait->crowded < CROWD_NS) {
        uint64_t pause = longer_pause(wait);
        wait->crowded += pause;
        return pause;
    }
    /* A stream that waits for the host, perhaps. */
    flights_give_up(&wait->process->timing.flights, launch->device, 0, wait->in_flight);
    return 0;
}

static bool is_long(const struct launch *launch)
{
    return launch->paid_ns >= LONG_NS;
}

bool waiting_alone(const struct launch *launch, const struct wait *wait)
{
    bool counted = wait->place == SAMPLING_FIRST || wait->place == SAMPLING_WITHIN;
    return wait->several && (counted || is_long(launch));
}

bool waiting_long(const struct wait *wait)
{
    return wait->crowded >= CROWD_NS || wait->now - wait->turn.begun >= PATIENCE_NS;
}

/* Is all that was launched done? What no mark stands for must have had the time for it since the
 * last mark was passed; and so must the last launches of other streams than that mark's. */
static bool drained(const struct launch *launch, struct wait *wait)
{
    uint64_t unmarked = in_flight_unmarked(wait->in_flight);
    uint64_t own = allowance.granted_ns - allowance.credit_ns;
    if (in_flight_work(wait->in_flight) > unmarked)
        wait->passed = wait->now;
    return wait->now - wait->passed >= unmarked + own + OTHERS_LAST * launch->paid_ns;
}

/* A window begins and ends with nothing else in flight. */
static uint64_t await_sampling(const struct launch *launch, struct wait *wait)
{
    bool edge = wait->place == SAMPLING_FIRST || wait->place == SAMPLING_AFTER;
    if (!edge || is_long(launch) || drained(launch, wait))
        return 0;
    if (wait->now - wait->turn.begun < SAMPLING_NS)
        return longer_pause(wait);
    sampling_window_failed(wait->window);
    wait->place = SAMPLING_NONE;
    return 0;
}

uint64_t waiting_pause(struct launch *launch, struct wait *wait)
{
    uint64_t pause = wait->known ? 0 : await_measurement(launch, wait);
    if (pause == 0)
        pause = await_room(launch, wait);
    return pause > 0 ? pause : await_sampling(launch, wait);
}

void waiting_gang(const struct launch *launch, struct wait *wait)
{
    const struct rank *rank = &wait->process->ranks[launch->device];
    wait->gang = (struct gang){
        .books = wait->process->session.books.page,
        .config = wait->process->session.config,
        .device = launch->device,
        .collectives = atomic_load_explicit(&rank->collectives, memory_order_relaxed),
        .last = atomic_load_explicit(&rank->last, memory_order_relaxed),
        .now = wait->now,
    };
    wait->ganged =
        !atomic_load_explicit(&rank->apart, memory_order_relaxed) && gang_any(&wait->gang);
}

static bool waited_for_gang(const struct wait *wait)
{
    return wait->stopped && wait->now - wait->turn.begun > PATIENCE_NS;
}

uint64_t waiting_gang_pause(struct wait *wait)
{
    if (!wait->collective || !wait->ganged || waited_for_gang(wait) || gang_behind(&wait->gang))
        return 0;
    uint64_t pause = gang_pause(&wait->gang, wait->stopped);
    wait->stopped = wait->stopped || pause > 0;
    return pause < PAUSE_LAST_NS ? pause : PAUSE_LAST_NS;
}

/* Where no gang is known, others may be of other containers, or nodes: a collective does not wait,
 * but a program of nothing else must not go on for ever. */
bool waiting_urgent(const struct wait *wait)
{
    uint64_t clock = atomic_load_explicit(&wait->meter->virtual_time, memory_order_relaxed);
    uint64_t most = limiter_stretch(GANG_OVERDRAFT_NS, wait->terms.rate_ppm);
    bool awaited = wait->ganged ? gang_behind(&wait->gang) : wait->collective;
    return awaited && clock < wait->now + most;
}

/* Its own clock allowed it all the time, or does now, and others' did not for long: they are not in
 * step with it. Example: two jobs in one container that happen to count alike. */
void waiting_gang_count(const struct launch *launch, struct wait *wait)
{
    struct rank *rank = &wait->process->ranks[launch->device];
    if (waited_for_gang(wait) && !wait->turn.refused)
        atomic_store_explicit(&rank->apart, true, memory_order_relaxed);
    if (!wait->collective || atomic_load_explicit(&rank->apart, memory_order_relaxed))
        return;
    wait->gang.collectives =
        atomic_fetch_add_explicit(&rank->collectives, 1, memory_order_relaxed) + 1;
    wait->gang.last = wait->now;
    atomic_store_explicit(&rank->last, wait->now, memory_order_relaxed);
    gang_tell(&wait->gang);
}
