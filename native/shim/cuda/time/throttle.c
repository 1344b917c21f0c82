#include "cuda/time/throttle.h"

#include "cuda/memory/overhead.h"
#include "cuda/time/collective.h"
#include "cuda/time/prepaid.h"
#include "cuda/time/turn.h"
#include "cuda/time/waiting.h"
#include "runtime/clock.h"
#include "runtime/interruption.h"

enum {
    SLICE_NS = 50 * MILLISECOND, /* then look again: the rate may have been raised */
    MARKS = 8,                   /* in what may be in flight */
    MARKS_BETWEEN = 2,           /* the same of launches that overlap */
    SPARED_OF = 8,               /* of those, one of so many that are due is measured */
    SOON_NS = 100 * MICROSECOND, /* after a look at an event another: it takes a microsecond */
    SELDOM_NS = MILLISECOND,     /* where nobody waits for it */
};

/* With one device granted it can be no other; asking the driver costs more than all the rest. */
static CUresult find_device(struct process *process, int *device)
{
    *device = 0;
    return process->session.config->device_count == 1 ? CUDA_SUCCESS
                                                      : process_current(process, device);
}

/* Try to pay. 0: paid. Otherwise ns to wait. */
static uint64_t try_to_pay(struct launch *launch, struct wait *wait)
{
    struct process *process = wait->process;
    wait->known = cost_estimate(&process->costs, wait->key, &launch->paid_ns);
    launch->paid_ns = limiter_cost(wait->terms, launch->paid_ns);
    uint64_t pause = wait->turn.urgent ? 0 : waiting_pause(launch, wait);
    if (pause > 0)
        return pause;
    pause = wait->turn.urgent ? 0 : waiting_gang_pause(wait);
    if (pause > 0)
        return pause;
    bool each = cost_each(&process->costs, wait->key);
    wait->asked = each || wait->turn.urgent || waiting_alone(launch, wait) || waiting_long(wait)
                      ? allowance_ask_one(launch->paid_ns)
                      : allowance_ask(wait->terms, wait->now, launch->paid_ns);
    return arbitration_admit(wait->meter, wait->terms, &wait->turn, wait->now, wait->asked);
}

/* While a launch of unknown cost is measured, siblings would make it look longer than it is. */
static void hold_turn(struct process *process, unsigned device, uint64_t now)
{
    bool explores = timing_explores(process, device);
    arbitration_hold(&process->session.books.page->meters[device], process_turn(process), now,
                     explores);
    process_explore(process, device, explores);
}

/* How often to look at the same event; waits: the launch has, already. Who is about to wait for
 * work in flight looks at once: it may be done. */
static uint64_t patience(struct wait *wait, bool waits)
{
    if (waiting_crowded(wait, 1))
        return 0;
    return waits || waiting_crowded(wait, 2) ? SOON_NS : SELDOM_NS;
}

static void look(struct launch *launch, struct wait *wait, bool waits)
{
    wait->now = clock_now();
    wait->terms = limiter_terms(&wait->process->session.config->limits[launch->device], wait->now);
    wait->look.marks = wait->several || waiting_crowded(wait, 2);
    if (collective_any(wait->process))
        waiting_gang(launch, wait);
    wait->look.every_ns = patience(wait, waits);
    wait->look.now = wait->now;
    timing_poll(wait->process, &wait->look);
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

/* Of a kind whose first measurement is under way another one is not measured, too. */
static bool guessed(const struct launch *launch, const struct wait *wait)
{
    return !wait->known && flights_guess(&wait->process->timing.flights, launch->device, wait->key,
                                         launch->paid_ns);
}

/* May it begin before the launch in front of it in its stream has ended (programmatic dependent
 * launch)? An event between the two would prevent that. */
static bool overlaps(const struct launch *launch)
{
    const CUlaunchConfig *config = launch->config;
    unsigned int count = config == NULL || config->attrs == NULL ? 0 : config->numAttrs;
    for (unsigned int index = 0; index < count; index++) {
        const CUlaunchAttribute *attribute = &config->attrs[index];
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
            attribute->value.programmatic != 0)
            return true;
    }
    return false;
}

/* Such kernels are measured, too, or the attribute would be a way out of the limit; but rarely. */
static bool spared(const struct launch *launch, const struct wait *wait)
{
    return wait->known && launch->paid_ns < MILLISECOND && overlaps(launch) &&
           (wait->now * UINT64_C(0x9e3779b97f4a7c15)) >> 32 > UINT32_MAX / SPARED_OF;
}

static bool due(const struct launch *launch, const struct wait *wait, uint64_t done)
{
    if (guessed(launch, wait))
        return false;
    if (!wait->several)
        return cost_due(&wait->process->costs, wait->key, done) && !spared(launch, wait);
    sampling_window_count(wait->window, done - launch->paid_ns, launch->paid_ns);
    return !wait->known || waiting_alone(launch, wait);
}

/* Measure the launch, if it is time to, or let it carry a mark, or neither. */
static void watch(struct launch *launch, struct wait *wait, uint64_t done)
{
    uint64_t key = due(launch, wait, done) ? wait->key : 0;
    unsigned marks = overlaps(launch) ? MARKS_BETWEEN : MARKS;
    uint64_t least = key != 0 || wait->several ? 0 : waiting_room(wait->terms) / marks;
    uint64_t work = in_flight_mark(wait->in_flight, least, wait->now);
    if (key == 0 && work == 0)
        return;
    if (wait->look.context == 0)
        wait->look.context = timing_context();
    struct timing_subject subject = {
        .key = key,
        .paid_ns = launch->paid_ns,
        .work_ns = work,
        .device = launch->device,
        .stream = launch->stream,
        .context = wait->look.context,
    };
    launch->flight = timing_begin(wait->process, subject, wait->now);
}

static bool any_unmeasured(const struct wait *wait)
{
    const struct unmeasured *unmeasured = &wait->process->timing.unmeasured;
    return atomic_load_explicit(&unmeasured->count, memory_order_relaxed) > 0;
}

static struct timing_subject elapsed_of(const struct launch *launch, struct wait *wait)
{
    if (wait->look.context == 0)
        wait->look.context = timing_context();
    return (struct timing_subject){
        .device = launch->device, .stream = launch->stream, .context = wait->look.context};
}

/* Is there still work in a stream where nothing is measured? */
static void see_elapsed(const struct launch *launch, struct wait *wait, bool held)
{
    if (any_unmeasured(wait))
        timing_see_elapsed(wait->process, elapsed_of(launch, wait), held, wait->now);
}

/* Nothing is in flight there, nor measured: elapsed time is charged. */
static bool is_unmeasured(const struct launch *launch, struct wait *wait, uint64_t done)
{
    if (!any_unmeasured(wait))
        return false;
    struct timing_subject subject = elapsed_of(launch, wait);
    subject.paid_ns = done;
    return timing_charge_elapsed(wait->process, subject, wait->now);
}

/* The stream of one's own is another in each thread; 0 is nobody's. */
static uint64_t name_of(CUstream stream)
{
    return stream == CU_STREAM_PER_THREAD ? (uintptr_t)&allowance : (uintptr_t)stream + 1;
}

/* The only place where it waits: a signal or a cancellation may come here, for nothing is held. */
static void sleep_for(const struct wait *wait, uint64_t pause)
{
    interruption_allow(wait->before);
    clock_sleep_until(wait->now + (pause < SLICE_NS ? pause : SLICE_NS));
    interruption_block(&(struct interruption){0});
}

static void pay(struct launch *launch, uint64_t key)
{
    struct process *process = launch->process;
    _Atomic uint64_t *latest = &process->session.books.page->logbooks[launch->device].served_ns;
    _Atomic uint64_t *served = &process->served[launch->device];
    struct interruption before;
    interruption_block(&before);
    allowance_turn(process, launch->device);
    struct wait wait = {
        .process = process,
        .meter = &process->session.books.page->meters[launch->device],
        .in_flight = &process->in_flight[launch->device],
        .window = &process->sampling_windows[launch->device],
        .turn.slot = process_turn(process),
        .before = &before,
        .key = key,
        .pause = PAUSE_FIRST_NS,
        .look.device = launch->device,
        .collective = collective_any(process) && collective_has(process, launch->function),
    };
    look(launch, &wait, false);
    wait.several = sampling_window_streams(wait.window, name_of(launch->stream), wait.now);
    wait.place = wait.several ? sampling_window_next(wait.window) : SAMPLING_NONE;
    wait.turn.begun = wait.passed = wait.now;
    wait.turn.served = arbitration_served(latest, served, wait.terms);
    see_elapsed(launch, &wait, false);
    for (uint64_t pause; (pause = try_to_pay(launch, &wait)) > 0;) {
        wait.turn.urgent = waiting_urgent(&wait);
        if (wait.turn.urgent)
            continue;
        sleep_for(&wait, pause);
        limiter_wait(wait.meter, clock_now());
        look(launch, &wait, true);
        see_elapsed(launch, &wait, true);
    }
    count_wait(&wait);
    arbitration_serve(latest, served, &wait.turn, wait.asked);
    if (collective_any(process))
        waiting_gang_count(launch, &wait);
    uint64_t done = allowance_take(wait.terms, wait.now, wait.asked, launch->paid_ns);
    bool unmeasured = is_unmeasured(launch, &wait, done);
    if (!unmeasured)
        in_flight_add(wait.in_flight, done);
    interruption_allow(&before); /* an event waits for room in the queue, as the launch does */
    if (!unmeasured)
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
    if (process->session.turns.words != NULL) {
        turn_begin(process, (unsigned)device, launch);
        return CUDA_SUCCESS;
    }
    launch->process = process;
    launch->device = (unsigned)device;
    pay(launch, key);
    return CUDA_SUCCESS;
}

CUresult throttle_begin_slowly(struct launch *launch, uint64_t key)
{
    struct process *process;
    enum gate gate = process_gate(&process);
    if (gate == GATE_REFUSED)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    launch->first =
        process_known() != NULL && !throttle_launched(process_known(), launch->function);
    return gate == GATE_DRIVER ? CUDA_SUCCESS : begin_limited(launch, process, key);
}

/* What it took is there now. Where nothing is limited only the bit is set. */
static void end_first(CUfunction function)
{
    uint64_t bit = throttle_launched_bit(function);
    overhead_grown(CUDA_SUCCESS);
    atomic_fetch_or_explicit(&process_known()->launched.words[bit / 64], UINT64_C(1) << bit % 64,
                             memory_order_relaxed);
}

CUresult throttle_end_slowly(struct launch *launch, CUresult result)
{
    if (launch->turned != NULL)
        turn_end(launch, result);
    if (launch->flight != NULL)
        timing_end(launch->process, launch->flight, launch->stream, result);
    if (launch->first && result == CUDA_SUCCESS)
        end_first(launch->function);
    if (launch->process != NULL && result != CUDA_SUCCESS)
        allowance_return(launch->paid_ns);
    return result;
}

CUresult throttle_begin(struct launch *launch)
{
    return prepaid_begin(launch);
}

CUresult throttle_end(struct launch *launch, CUresult result)
{
    return prepaid_end(launch, result);
}

/* Are there others on a GPU on which it is limited? */
static bool contested(const struct vcuda_config *config)
{
    for (uint32_t device = 0; device < config->device_count; device++)
        if (throttle_limited(&config->limits[device]) &&
            atomic_load_explicit(&config->limits[device].neighbours, memory_order_relaxed) > 0)
            return true;
    return false;
}

uint64_t throttle_wait(void)
{
    const struct process *process = process_limited();
    return process == NULL || !contested(process->session.config) ? 0 : clock_now();
}

static void count_awaited(struct process *process, int device, uint64_t begun, uint64_t now)
{
    if (begun > 0)
        atomic_fetch_add_explicit(&process->session.books.page->meters[device].awaited_ns,
                                  now - begun, memory_order_relaxed);
}

void throttle_waited(uint64_t begun, uint64_t stream)
{
    struct process *process = process_limited();
    int device;
    if (process != NULL && process->session.turns.words != NULL) {
        if (find_device(process, &device) == CUDA_SUCCESS && device >= 0)
            turn_waited(process, (unsigned)device, stream);
        return;
    }
    if (process == NULL || throttle_idle() ||
        (begun == 0 && !flights_any(&process->timing.flights) &&
         atomic_load_explicit(&process->timing.unmeasured.count, memory_order_relaxed) == 0))
        return;
    struct interruption interruption;
    interruption_block(&interruption);
    if (find_device(process, &device) == CUDA_SUCCESS && device >= 0) {
        uint64_t now = clock_now();
        count_awaited(process, device, begun, now);
        struct timing_look look = {.device = (unsigned)device, .marks = true, .now = now};
        timing_poll(process, &look);
        timing_waited(process, (unsigned)device, stream, now);
        hold_turn(process, (unsigned)device, now);
    }
    interruption_allow(&interruption);
}
