#include "core/time/flight.h"

#include <stddef.h>

/* Measurements take from the end, marks from the beginning and not all. */
struct flight *flights_take(struct flights *flights, bool measured)
{
    int count = measured ? FLIGHTS : FLIGHTS_OF_MARKS;
    for (int index = 0; index < count; index++) {
        struct flight *flight = &flights->of[measured ? FLIGHTS - 1 - index : index];
        if (flight_phase(flight) == FLIGHT_NONE && flight_hold(flight, FLIGHT_NONE))
            return flight;
    }
    return NULL;
}

struct flight *flights_take_given_up(struct flights *flights)
{
    for (int index = 0; index < FLIGHTS; index++) {
        struct flight *flight = &flights->of[index];
        if (flight_phase(flight) != FLIGHT_FLYING || !flight_hold(flight, FLIGHT_FLYING))
            continue;
        if (flight->given_up)
            return flight;
        flight_let_go(flight, FLIGHT_FLYING);
    }
    return NULL;
}

void flight_uncount(struct flight *flight, struct in_flight *in_flight)
{
    if (!atomic_exchange(&flight->given_up, true))
        in_flight_done(in_flight, flight->work_ns);
}

bool flights_any(const struct flights *flights)
{
    for (int index = 0; index < FLIGHTS; index++)
        if (flight_phase(&flights->of[index]) != FLIGHT_NONE)
            return true;
    return false;
}

/* The measurement of this kind that is under way and worth waiting for; NULL if there is none. */
static struct flight *measuring(struct flights *flights, unsigned device, uint64_t key)
{
    for (int index = 0; index < FLIGHTS; index++) {
        struct flight *flight = &flights->of[index];
        if (flight_phase(flight) != FLIGHT_NONE && flight->device == device && flight->key == key &&
            !flight->given_up)
            return flight;
    }
    return NULL;
}

bool flights_measure(struct flights *flights, unsigned device, uint64_t key)
{
    return measuring(flights, device, key) != NULL;
}

/* If it ends meanwhile, one guess is not put right. */
bool flights_guess(struct flights *flights, unsigned device, uint64_t key, uint64_t paid_ns)
{
    struct flight *flight = measuring(flights, device, key);
    if (flight == NULL)
        return false;
    atomic_fetch_add_explicit(&flight->guessed_ns, paid_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&flight->guesses, 1, memory_order_relaxed);
    return true;
}

uint64_t flights_oldest(const struct flights *flights, unsigned long long context)
{
    uint64_t oldest = UINT64_MAX;
    for (int index = 0; index < FLIGHTS; index++) {
        const struct flight *flight = &flights->of[index];
        if (flight_phase(flight) == FLIGHT_FLYING && flight->context == context &&
            !flight->given_up && flight->begun_ns < oldest)
            oldest = flight->begun_ns;
    }
    return oldest;
}

bool flights_full(const struct flights *flights)
{
    bool hope = false;
    for (int index = 0; index < FLIGHTS; index++) {
        if (flight_phase(&flights->of[index]) == FLIGHT_NONE)
            return false;
        hope = hope || !flights->of[index].given_up;
    }
    return hope;
}

/* Held meanwhile, or it could be another one by the time it is no longer counted. */
void flights_give_up(struct flights *flights, unsigned device, uint64_t key,
                     struct in_flight *in_flight)
{
    for (int index = 0; index < FLIGHTS; index++) {
        struct flight *flight = &flights->of[index];
        if (flight_phase(flight) != FLIGHT_FLYING || !flight_hold(flight, FLIGHT_FLYING))
            continue;
        if (flight->device == device && (key == 0 || flight->key == key))
            flight_uncount(flight, in_flight);
        flight_let_go(flight, FLIGHT_FLYING);
    }
}

void flights_outdate(struct flights *flights, uint64_t key)
{
    for (int index = 0; index < FLIGHTS; index++)
        if (flights->of[index].key == key)
            flights->of[index].outdated = true;
}
