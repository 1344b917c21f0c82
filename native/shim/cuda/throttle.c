#include "cuda/throttle.h"

#include "runtime/clock.h"

enum {
    MICROSECOND = 1000,
    SLICE_NS = 50 * 1000 * MICROSECOND, /* then look again: the rate may have been raised */
    PAUSE_FIRST_NS = 20 * MICROSECOND,  /* waiting for a measurement */
    PAUSE_LAST_NS = 1000 * MICROSECOND,
    OTHERS_NS = 100 * 1000 * MICROSECOND, /* patience with the measurement of another kind */
};

static const uint64_t patience_ns = UINT64_C(10000000000); /* then the launch is let through */
static const uint64_t unknown_ns = UINT64_C(2000000000);   /* patience with one's own kind */

/* How long one launch has waited, and for what. */
struct wait {
    uint64_t begun;
    uint64_t now;
    uint64_t pause;
    uint64_t drain; /* how much of the work in flight has to drain first; 0 until refused */
};

/* With one device granted it can be no other; asking the driver costs more than all the rest. */
static CUresult find_device(struct process *process, int *device)
{
    *device = 0;
    return process->session.config->device_count == 1 ? CUDA_SUCCESS
                                                      : process_current(process, device);
}

/* A kind that is being measured for the first time should not run on before its cost is known. */
static bool awaits_measurement(const struct process *process, uint64_t key, bool known,
                               const struct wait *wait)
{
    if (known || !timing_flying(&process->timing))
        return false;
    uint64_t patience = process->timing.key == key ? unknown_ns : OTHERS_NS;
    return wait->now - wait->begun < patience;
}

static uint64_t longer_pause(struct wait *wait)
{
    uint64_t pause = wait->pause;
    wait->pause = pause * 2 < PAUSE_LAST_NS ? pause * 2 : PAUSE_LAST_NS;
    return pause;
}

/* Who is refused once waits until the work in flight is done, give or take, and then launches in a
 * burst. Launches that come evenly spaced would leave a neighbour no gap as long as a kernel of its
 * own, in which alone it can be measured; and chance keeps two containers from falling into step.
 */
static uint64_t choose_drain(struct limiter_terms terms, uint64_t now)
{
    uint64_t chance = (now * UINT64_C(0x9e3779b97f4a7c15)) >> 40; /* 24 bits */
    return terms.burst_ns / 4 + (uint64_t)((double)terms.burst_ns * (double)chance / (1 << 24));
}

static uint64_t try_to_enter(struct launch *launch, struct limiter_terms terms, struct wait *wait)
{
    struct vcuda_meter *meter = &launch->process->session.books.page->meters[launch->device];
    terms.lead_ns -= (int64_t)wait->drain;
    uint64_t pause = limiter_admit(meter, terms, wait->now, launch->paid_ns);
    if (pause > 0 && wait->drain == 0)
        pause += wait->drain = choose_drain(terms, wait->now);
    return pause;
}

/* Try to pay. 0: paid. Otherwise ns to wait. */
static uint64_t try_to_pay(struct launch *launch, uint64_t key, struct wait *wait)
{
    struct process *process = launch->process;
    struct vcuda_meter *meter = &process->session.books.page->meters[launch->device];
    struct limiter_terms terms = limiter_terms(&process->session.config->limits[launch->device]);
    bool known = cost_estimate(&process->costs, key, &launch->paid_ns);
    if (awaits_measurement(process, key, known, wait))
        return longer_pause(wait);
    if (wait->now - wait->begun < patience_ns)
        return try_to_enter(launch, terms, wait);
    limiter_charge(meter, terms, wait->now, launch->paid_ns);
    return 0;
}

static void wait_and_pay(struct launch *launch, uint64_t key)
{
    struct process *process = launch->process;
    struct wait wait = {.begun = clock_now(), .pause = PAUSE_FIRST_NS};
    wait.now = wait.begun;
    timing_poll(process, wait.now);
    for (uint64_t pause; (pause = try_to_pay(launch, key, &wait)) > 0;) {
        clock_sleep_until(wait.now + (pause < SLICE_NS ? pause : SLICE_NS));
        wait.now = clock_now();
        timing_poll(process, wait.now);
    }
    if (wait.now > wait.begun)
        atomic_fetch_add(&process->session.books.page->meters[launch->device].throttled_ns,
                         wait.now - wait.begun);
    struct timing_subject subject = {key, launch->paid_ns, launch->device, launch->stream};
    if (cost_due(&process->costs, key, launch->paid_ns))
        launch->timed = timing_begin(process, subject, wait.now);
}

static CUresult begin_limited(struct launch *launch, struct process *process)
{
    int device;
    CUresult result = find_device(process, &device);
    if (result != CUDA_SUCCESS || device < 0) /* not granted: it has no memory to work on */
        return result;
    if (!throttle_limited(&process->session.config->limits[device]))
        return CUDA_SUCCESS;
    launch->process = process;
    launch->device = (unsigned)device;
    process_depth++; /* until throttle_end() */
    wait_and_pay(launch, cost_key((uintptr_t)launch->function, launch->blocks, launch->threads));
    return CUDA_SUCCESS;
}

CUresult throttle_begin(struct launch *launch)
{
    struct process *process;
    launch->process = NULL;
    launch->timed = false;
    switch (process_gate(&process)) {
    case GATE_DRIVER:
        return CUDA_SUCCESS;
    case GATE_REFUSED:
        return CUDA_ERROR_SYSTEM_NOT_READY;
    default:
        return begin_limited(launch, process);
    }
}

static void give_back(const struct launch *launch)
{
    struct session *session = &launch->process->session;
    limiter_settle(&session->books.page->meters[launch->device],
                   limiter_terms(&session->config->limits[launch->device]),
                   -(int64_t)launch->paid_ns);
}

CUresult throttle_end(struct launch *launch, CUresult result)
{
    if (launch->process == NULL)
        return result;
    if (launch->timed)
        timing_end(launch->process, launch->stream, result);
    if (result != CUDA_SUCCESS)
        give_back(launch);
    process_depth--;
    return result;
}
