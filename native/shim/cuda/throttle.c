#include "cuda/throttle.h"

#include "cuda/allowance.h"
#include "cuda/capturing.h"
#include "runtime/clock.h"

enum {
    MICROSECOND = 1000,
    MILLISECOND = 1000 * MICROSECOND,
    SLICE_NS = 50 * MILLISECOND,       /* then look again: the rate may have been raised */
    PAUSE_FIRST_NS = 50 * MICROSECOND, /* waiting for the GPU: for an event, that is */
    PAUSE_LAST_NS = MILLISECOND,
    OTHERS_NS = 100 * MILLISECOND, /* patience with the measurement of other kinds */
    CROWD_NS = 250 * MILLISECOND,  /* patience with work in flight */
    IN_FLIGHT_NS = 20 * MILLISECOND,
    CENSUS_NS = 20 * MILLISECOND, /* patience with its beginning and its end */
    MARKS = 8,                    /* in what may be in flight */
};

static const uint64_t unknown_ns = UINT64_C(2000000000); /* patience with one's own kind */

/* How one launch waits to be paid for. */
struct wait {
    struct process *process;
    struct vcuda_meter *meter;
    struct in_flight *in_flight;
    struct limiter_terms terms;
    uint64_t key;
    struct turn_wait turn;
    uint64_t now;
    uint64_t pause;
    uint64_t crowded; /* waited so long for work in flight */
    uint64_t asked;   /* to be paid */
    bool known;       /* what the kind costs */
    bool mixed;       /* several streams have work */
    int census;       /* of them: which launch is this? */
    uint64_t passed;  /* when the last mark was in flight, at the latest */
};

/* With one device granted it can be no other; asking the driver costs more than all the rest. */
static CUresult find_device(struct process *process, int *device)
{
    *device = 0;
    return process->session.config->device_count == 1 ? CUDA_SUCCESS
                                                      : process_current(process, device);
}

static uint64_t longer_pause(struct wait *wait)
{
    uint64_t pause = wait->pause;
    wait->pause = pause * 2 < PAUSE_LAST_NS ? pause * 2 : PAUSE_LAST_NS;
    return pause;
}

/* Is this worth waiting for, and for how long? A kind that is measured for the first time should
 * not run on before its cost is known. Nobody waits twice for what does not end. */
static uint64_t await_measurement(struct launch *launch, struct wait *wait)
{
    struct flights *flights = &wait->process->timing.flights;
    bool own = flights_measure(flights, launch->device, wait->key);
    if (!own && !flights_full(flights))
        return 0;
    if (wait->now - wait->turn.begun < (own ? unknown_ns : OTHERS_NS))
        return longer_pause(wait);
    flights_give_up(flights, launch->device, own ? wait->key : 0, wait->in_flight);
    if (own)
        cost_presume(&wait->process->costs, wait->key, wait->now);
    return 0;
}

/* What may be in flight. */
static uint64_t room(struct limiter_terms terms)
{
    return terms.burst_ns > IN_FLIGHT_NS ? terms.burst_ns : IN_FLIGHT_NS;
}

/* Is as much work in flight as may be, or, with 2, half of that? By what was charged; or, for that
 * may have been too little, by what is not done yet though it had time enough at this rate. */
static bool crowded(const struct wait *wait, unsigned parts)
{
    const struct flights *flights = &wait->process->timing.flights;
    uint64_t most = room(wait->terms);
    if (in_flight_work(wait->in_flight) >= most / parts)
        return true;
    uint64_t oldest = flights_any(flights) ? flights_oldest(flights, timing_context()) : UINT64_MAX;
    return oldest < wait->now &&
           wait->now - oldest > limiter_stretch(most, wait->terms.rate_ppm) / parts;
}

static uint64_t await_room(struct launch *launch, struct wait *wait)
{
    if (!crowded(wait, 1))
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

/* Launches that long are paid for one by one beside other streams, so that all are watched. */
static bool is_long(const struct launch *launch)
{
    return launch->paid_ns >= LIMITER_ALLOWANCE_NS / 2;
}

/* Beside other streams, what part of the time was whose can be told only if all launches are
 * watched: long ones always, and all for the time of a census. */
static bool paid_alone(const struct launch *launch, const struct wait *wait)
{
    return wait->mixed && (wait->census > 0 || is_long(launch));
}

/* Is all that was launched done? What no mark stands for must have had the time for it since the
 * last mark was passed; and so must the last launches of other streams than that mark's. */
static bool drained(const struct launch *launch, struct wait *wait)
{
    uint64_t unmarked = in_flight_unmarked(wait->in_flight);
    uint64_t own = allowance.granted_ns - allowance.credit_ns;
    if (in_flight_work(wait->in_flight) > unmarked)
        wait->passed = wait->now;
    return wait->now - wait->passed >= unmarked + own + 4 * launch->paid_ns;
}

/* A census begins and ends with nothing else in flight. */
static uint64_t await_census(const struct launch *launch, struct wait *wait)
{
    bool edge = wait->census == 0 || wait->census == IN_FLIGHT_CENSUS;
    if (!edge || is_long(launch) || drained(launch, wait))
        return 0;
    if (wait->now - wait->turn.begun < CENSUS_NS)
        return longer_pause(wait);
    in_flight_census_failed(wait->in_flight);
    wait->census = -1;
    return 0;
}

static uint64_t ask(const struct launch *launch, const struct wait *wait)
{
    return paid_alone(launch, wait) && launch->paid_ns > allowance.credit_ns
               ? launch->paid_ns - allowance.credit_ns
               : allowance_ask(wait->terms, wait->now, launch->paid_ns);
}

/* Try to pay. 0: paid. Otherwise ns to wait. */
static uint64_t try_to_pay(struct launch *launch, struct wait *wait)
{
    struct process *process = wait->process;
    uint64_t pause = 0;
    wait->known = cost_estimate(&process->costs, wait->key, &launch->paid_ns);
    if (!wait->known)
        pause = await_measurement(launch, wait);
    launch->paid_ns = limiter_price(wait->terms.price, launch->paid_ns);
    if (pause == 0)
        pause = await_room(launch, wait);
    if (pause == 0)
        pause = await_census(launch, wait);
    if (pause > 0)
        return pause;
    wait->asked = ask(launch, wait);
    return turn_admit(wait->meter, wait->terms, &wait->turn, wait->now, wait->asked);
}

/* While a launch of unknown cost is measured, siblings would make it look longer than it is. */
static void hold_turn(struct process *process, unsigned device, uint64_t now)
{
    turn_hold(&process->session.books.page->meters[device], process_turn(process), now,
              timing_explores(process, device));
}

static void look(struct launch *launch, struct wait *wait)
{
    wait->now = clock_now();
    wait->terms = limiter_terms(&wait->process->session.config->limits[launch->device], wait->now);
    timing_poll(wait->process, launch->device,
                crowded(wait, 2) || wait->mixed ? TIMING_ALL : TIMING_MEASURED, wait->now);
    hold_turn(wait->process, launch->device, wait->now);
}

static void count_wait(const struct wait *wait)
{
    if (wait->now == wait->turn.begun)
        return;
    atomic_fetch_add_explicit(&wait->meter->throttled_ns, wait->now - wait->turn.begun,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&wait->meter->throttled, 1, memory_order_relaxed);
}

static bool due(const struct launch *launch, const struct wait *wait, uint64_t done)
{
    if (wait->mixed)
        in_flight_count(wait->in_flight, done - launch->paid_ns, launch->paid_ns);
    return wait->mixed ? !wait->known || paid_alone(launch, wait)
                       : cost_due(&wait->process->costs, wait->key, done);
}

/* Measure the launch, if it is time to, or let it carry a mark, or neither. */
static void watch(struct launch *launch, const struct wait *wait, uint64_t done)
{
    uint64_t key = due(launch, wait, done) ? wait->key : 0;
    uint64_t least = key != 0 || wait->mixed ? 0 : room(wait->terms) / MARKS;
    uint64_t work = in_flight_mark(wait->in_flight, least, wait->now);
    struct timing_subject subject = {
        .key = key,
        .paid_ns = launch->paid_ns,
        .work_ns = work,
        .device = launch->device,
        .stream = launch->stream,
    };
    if (key == 0 && work == 0)
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &launch->cancellable);
    launch->flight = timing_begin(wait->process, subject, wait->now);
    if (launch->flight == NULL)
        pthread_setcancelstate(launch->cancellable, NULL);
}

/* The stream of one's own is another in each thread; 0 is nobody's. */
static uint64_t name_of(CUstream stream)
{
    return stream == CU_STREAM_PER_THREAD ? (uintptr_t)&allowance : (uintptr_t)stream + 1;
}

static void pay(struct launch *launch, uint64_t key)
{
    struct process *process = launch->process;
    struct wait wait = {
        .process = process,
        .meter = &process->session.books.page->meters[launch->device],
        .in_flight = &process->in_flight[launch->device],
        .turn.slot = process_turn(process),
        .key = key,
        .pause = PAUSE_FIRST_NS,
    };
    look(launch, &wait);
    wait.mixed = in_flight_mixed(wait.in_flight, name_of(launch->stream), wait.now);
    wait.census = wait.mixed ? in_flight_census(wait.in_flight) : -1;
    wait.turn.begun = wait.passed = wait.now;
    for (uint64_t pause; (pause = try_to_pay(launch, &wait)) > 0;) {
        clock_sleep_until(wait.now + (pause < SLICE_NS ? pause : SLICE_NS));
        look(launch, &wait);
    }
    count_wait(&wait);
    uint64_t done = allowance_take(wait.terms, wait.now, wait.asked, launch->paid_ns);
    in_flight_add(wait.in_flight, done);
    watch(launch, &wait, done);
    if (launch->flight != NULL)
        hold_turn(process, launch->device, wait.now);
}

static CUresult begin_limited(struct launch *launch, struct process *process, uint64_t key)
{
    int device;
    CUresult result = find_device(process, &device);
    if (result != CUDA_SUCCESS || device < 0) /* not granted: it has no memory to work on */
        return result;
    if (!throttle_limited(&process->session.config->limits[device]) ||
        capture_is_on(process, launch->stream)) /* then it runs nothing */
        return CUDA_SUCCESS;
    launch->process = process;
    launch->device = (unsigned)device;
    process_depth++; /* until throttle_end() */
    allowance_turn(process, launch->device);
    pay(launch, key);
    return CUDA_SUCCESS;
}

static NOT_INLINE CUresult begin_slowly(struct launch *launch, uint64_t key)
{
    struct process *process;
    switch (process_gate(&process)) {
    case GATE_DRIVER:
        return CUDA_SUCCESS;
    case GATE_REFUSED:
        return CUDA_ERROR_SYSTEM_NOT_READY;
    default:
        return begin_limited(launch, process, key);
    }
}

/* From what the thread has paid for already. */
static bool begin_prepaid(struct launch *launch, uint64_t key)
{
    struct process *process = process_known();
    if (process == NULL || process_depth > 0 || process_epoch(process) == 0 ||
        capture_may_be_on(process))
        return false;
    int device;
    uint64_t estimate;
    if (!cost_estimate(&process->costs, key, &estimate) ||
        find_device(process, &device) != CUDA_SUCCESS || device < 0)
        return false;
    launch->paid_ns = allowance_price(estimate);
    if (!allowance_pay(process, (unsigned)device, launch->paid_ns))
        return false;
    launch->process = process;
    process_depth++; /* until throttle_end() */
    return true;
}

CUresult throttle_begin(struct launch *launch)
{
    uint64_t key = cost_key((uintptr_t)launch->function, launch->blocks, launch->threads);
    launch->process = NULL;
    launch->flight = NULL;
    return begin_prepaid(launch, key) ? CUDA_SUCCESS : begin_slowly(launch, key);
}

CUresult throttle_end(struct launch *launch, CUresult result)
{
    if (launch->process == NULL)
        return result;
    if (launch->flight != NULL) {
        timing_end(launch->process, launch->flight, launch->stream, result);
        pthread_setcancelstate(launch->cancellable, NULL);
    }
    if (result != CUDA_SUCCESS)
        allowance_return(launch->paid_ns);
    process_depth--;
    return result;
}

void throttle_waited(void)
{
    struct process *process = process_limited();
    int device;
    if (process == NULL || throttle_idle() || !flights_any(&process->timing.flights))
        return;
    process_depth++;
    if (find_device(process, &device) == CUDA_SUCCESS && device >= 0) {
        uint64_t now = clock_now();
        timing_poll(process, (unsigned)device, TIMING_ALL_AT_ONCE, now);
        hold_turn(process, (unsigned)device, now);
    }
    process_depth--;
}
