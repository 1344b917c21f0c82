#include "cuda/time/turn.h"

#include "cuda/launch/capturing.h"
#include "cuda/pool/pool.h"
#include "cuda/time/collective.h"
#include "cuda/time/throttle.h"
#include "cuda/time/turn_marks.h"
#include "runtime/interruption.h"

enum {
    MICROSECOND = 1000,
    MILLISECOND = 1000 * MICROSECOND,
    AGAIN_NS = 10 * MILLISECOND, /* a wait is said again */
    RENEWED_NS = 25 * MILLISECOND,
    ANSWERS_NS = 20 * MILLISECOND, /* an arbiter that slept, after a ring */
    STILL_NS = 5 * MILLISECOND,    /* without progress: for a stream with nothing in flight */
    HELD_NS = 1000 * MILLISECOND,  /* for any other, or by its longest launch: */
    HELD_TIMES = 10,
    ROOM_NS = 3 * MILLISECOND, /* for room, or by what is in flight: */
    ROOM_TIMES = 3,
    MARK_NS = 50 * MICROSECOND, /* after so long the next launch carries a mark; */
    MARKS = 2,                  /* by credit so many in a window, */
    MARKS_WANTED = 8,           /* or so many while others wait, each MARK_NS at most; */
    PARTS = 4,                  /* a part of what may be in flight: marks show when there is room */
    SAVED_NS = 50 * MILLISECOND, /* of the bucket */
    BURST_NS = 2 * MILLISECOND,  /* of GPU time, that it lends */
    COSTS_NS = MILLISECOND,      /* a launch, where nothing is known */
};

_Thread_local struct turn_credit turn_credit;

/* One launch on its way. */
struct wait {
    struct turn_view view;
    const struct interruption *before;
    CUstream handle;
    uint32_t stream;
    bool collective;
    bool waits; /* said so */
    uint64_t begun, now;
};

/* Time in the world's own clock. Nothing is held meanwhile, so that a thread may leave by a jump:
 * what it said of itself is not renewed then. */
static void sleep_on(struct wait *wait, const VCUDA_ATOMIC(uint32_t) * word, uint32_t seen,
                     uint64_t deadline)
{
    pthread_mutex_unlock(&wait->view.device->mutex);
    interruption_allow(wait->before);
    wait->view.world->wait(word, seen, deadline);
    interruption_block(&(struct interruption){0});
    pthread_mutex_lock(&wait->view.device->mutex);
    wait->now = wait->view.world->now();
    turn_look(&wait->view, wait->now, false);
}

static uint64_t looked_at(const struct wait *wait)
{
    return atomic_load_explicit(&wait->view.word->looked_ns, memory_order_acquire);
}

static bool is_stale(const struct wait *wait)
{
    return turn_is_stale(&wait->view, wait->now);
}

/* Is no arbiter there? One that slept, for want of processes, is given time to answer; one
 * that did not answer is not waited for again. */
static bool is_away(struct wait *wait)
{
    uint64_t looked = looked_at(wait);
    if (!is_stale(wait))
        return false;
    if (looked != wait->view.device->away && wait->now < wait->begun + ANSWERS_NS)
        return false;
    wait->view.device->away = looked;
    return true;
}

/* The container's own bucket, by its guarantee, in the meter that all its processes share. Returns
 * 0 if the launch is paid for, else when to ask again. */
static uint64_t pay_alone(struct wait *wait)
{
    const struct turn_view *view = &wait->view;
    const struct session *session = &view->process->session;
    VCUDA_ATOMIC(uint64_t) *paid = &session->books.page->meters[view->index].virtual_time;
    uint32_t percent = atomic_load_explicit(&session->config->limits[view->index].core_percent,
                                            memory_order_relaxed);
    uint64_t each = view->device->ahead.each_ns == 0 ? COSTS_NS : view->device->ahead.each_ns;
    uint64_t lent = view->device->spent ? 0 : BURST_NS * 100 / (percent + !percent);
    uint64_t until = atomic_load_explicit(paid, memory_order_relaxed), from;
    do {
        view->device->spent = until > wait->now + lent;
        if (view->device->spent)
            return until < wait->now + AGAIN_NS ? until : wait->now + AGAIN_NS;
        from = until + SAVED_NS < wait->now ? wait->now - SAVED_NS : until;
    } while (!atomic_compare_exchange_weak(paid, &until, from + each * 100 / (percent + !percent)));
    return 0;
}

/* Has the container no progress in what it has in flight, so that this launch may be what that
 * waits for? */
static bool must_go(const struct wait *wait)
{
    const struct turn_device *device = wait->view.device;
    uint64_t progress = atomic_load_explicit(&wait->view.hint->progress_ns, memory_order_relaxed);
    uint64_t longest = HELD_TIMES * device->ahead.longest_ns;
    if (device->in_flight == 0 || wait->now < progress)
        return false;
    uint64_t still = wait->now - progress;
    if (device->streams[wait->stream].in_flight == 0)
        return still > STILL_NS;
    return still > (longest > HELD_NS ? longest : HELD_NS) && wait->now - wait->begun > STILL_NS;
}

/* Does a collective in flight, on any GPU and in any process of the container, wait for what this
 * process has not launched yet? It has launched fewer of them there. One that died with some in
 * flight is not waited for longer than a second. */
static bool is_behind(const struct wait *wait)
{
    const struct session *session = &wait->view.process->session;
    const struct vcuda_hint *own = wait->view.turns->hints - session->books.slot;
    uint32_t slots = atomic_load_explicit(&session->books.page->slot_limit, memory_order_relaxed);
    uint32_t launched =
        atomic_load_explicit(&wait->view.hint->collectives_launched, memory_order_relaxed);
    if (launched == 0 && !wait->collective)
        return false;
    for (uint32_t device = 0; device < session->config->device_count; device++)
        for (uint32_t slot = 0; slot < slots && slot < VCUDA_SLOTS; slot++) {
            const struct vcuda_hint *hint = &own[(size_t)device * VCUDA_SLOTS + slot];
            if (atomic_load_explicit(&hint->collectives, memory_order_relaxed) > 0 &&
                atomic_load_explicit(&hint->collectives_launched, memory_order_relaxed) >
                    launched &&
                wait->now <
                    atomic_load_explicit(&hint->progress_ns, memory_order_relaxed) + HELD_NS)
                return true;
        }
    return false;
}

static void say_waiting(struct wait *wait)
{
    struct vcuda_hint *hint = wait->view.hint;
    atomic_store_explicit(&hint->waits_until_ns, wait->now + RENEWED_NS, memory_order_relaxed);
    if (!wait->waits) {
        struct vcuda_books *page = wait->view.process->session.books.page;
        atomic_fetch_add_explicit(&hint->waiting, 1, memory_order_release);
        atomic_fetch_add_explicit(&page->meters[wait->view.index].throttled, 1,
                                  memory_order_relaxed);
    }
    wait->waits = true;
    turns_ring(wait->view.turns); /* again, too: rings may be lost, or not listened to */
}

static void say_done(struct wait *wait)
{
    if (wait->waits)
        atomic_fetch_sub_explicit(&wait->view.hint->waiting, 1, memory_order_release);
    wait->waits = false;
}

/* What this stream has behind its last mark would count as in flight, and be charged, for longer
 * than it is. */
static void mark_rest(struct wait *wait)
{
    wait->stream = turn_stream_of(&wait->view, pool_stream_key(wait->handle));
    turn_mark(&wait->view, wait->stream, wait->handle, wait->now);
}

/* False: not yet; it slept a while. */
static bool has_turn(struct wait *wait)
{
    uint32_t word = turn_word(&wait->view);
    if ((word & VCUDA_TURN_GRANTED) != 0 && !is_stale(wait))
        return true;
    if (!wait->waits)
        mark_rest(wait);
    say_waiting(wait);
    uint64_t until = wait->now + STILL_NS;
    if (is_away(wait)) {
        until = pay_alone(wait);
        if (until == 0)
            return true;
        sleep_on(wait, &wait->view.device->moved, wait->view.device->moved, until);
        return false;
    }
    if (is_behind(wait) || must_go(wait))
        return true;
    sleep_on(wait, &wait->view.word->turn, word, until);
    return false;
}

static bool has_room(const struct wait *wait)
{
    const struct turn_device *device = wait->view.device;
    return device->in_flight < run_ahead_most(&device->ahead);
}

/* Is there as much in flight as may be, and work in this very stream? */
static bool is_full(const struct wait *wait)
{
    const struct turn_device *device = wait->view.device;
    return !has_room(wait) && device->streams[wait->stream].in_flight > 0;
}

/* Where no mark is in flight nothing would show that there is room again. */
static void look_for_room(struct wait *wait)
{
    const struct turn_device *device = wait->view.device;
    if (!has_room(wait))
        turn_look(&wait->view, wait->now, false);
    if (has_room(wait) || device->tail != device->head)
        return;
    mark_rest(wait);
    turn_look(&wait->view, wait->now, false);
}

/* Wait until something has ended. False: nothing does, for so long that something may wait for this
 * very launch. */
static bool await_room(struct wait *wait)
{
    struct turn_device *device = wait->view.device;
    uint64_t begun = wait->now, usual = device->ahead.each_ns * device->in_flight * ROOM_TIMES;
    uint64_t patience = device->ahead.each_ns == 0 ? HELD_NS / 5
                        : usual > ROOM_NS          ? usual
                                                   : ROOM_NS;
    if ((turn_word(&wait->view) & VCUDA_TURN_SHARED) != 0)
        patience *= HELD_TIMES;
    device->waiting++;
    while (is_full(wait) && wait->now < begun + patience) {
        uint32_t moved = atomic_load_explicit(&device->moved, memory_order_acquire);
        sleep_on(wait, &device->moved, moved, turn_next_look(device, wait->now));
        if ((turn_word(&wait->view) & VCUDA_TURN_GRANTED) == 0)
            break;
    }
    device->waiting--;
    atomic_fetch_add_explicit(&wait->view.hint->held_ns, wait->now - begun, memory_order_relaxed);
    return !is_full(wait) || wait->now < begun + patience;
}

static void await_turn(struct wait *wait)
{
    for (;;) {
        if (!has_turn(wait))
            continue;
        bool away = is_stale(wait);
        say_done(wait);
        if (away || wait->collective || must_go(wait) || !is_full(wait))
            return;
        if (!await_room(wait)) {
            run_ahead_give_way(&wait->view.device->ahead);
            return;
        }
    }
}

/* Of GPU time, between two marks of one stream. */
static uint64_t between_marks(const struct turn_view *view)
{
    bool wanted = (turn_word(view) & VCUDA_TURN_WANTED) != 0;
    uint64_t part = atomic_load_explicit(&view->word->window_ns, memory_order_relaxed) /
                    (wanted ? MARKS_WANTED : MARKS);
    return part > MARK_NS ? part : MARK_NS;
}

/* A stream that each context has one of may be of another device next time; of one that each thread
 * has, no other thread can ask whether its work has ended. */
static bool has_name(const struct wait *wait)
{
    return wait->handle != CU_STREAM_PER_THREAD &&
           (wait->view.process->session.config->device_count == 1 ||
            (uintptr_t)wait->handle > (uintptr_t)CU_STREAM_PER_THREAD);
}

/* Where several streams have work each carries its own marks. */
static bool may_lend(const struct wait *wait, uint32_t word)
{
    const struct turn_device *device = wait->view.device;
    return !wait->collective && has_name(wait) && (word & VCUDA_TURN_GRANTED) != 0 &&
           !is_stale(wait) && device->ahead.each_ns > 0 && wait->stream != TURN_STREAMS - 1 &&
           device->in_flight == device->streams[wait->stream].in_flight &&
           !capture_may_be_on(wait->view.process);
}

static void give_credit(struct wait *wait)
{
    struct turn_device *device = wait->view.device;
    struct turn_stream *stream = &device->streams[wait->stream];
    uint32_t word = turn_word(&wait->view), most = run_ahead_most(&device->ahead);
    if (!may_lend(wait, word) || device->in_flight >= most || most / PARTS < 2)
        return;
    uint64_t launches = between_marks(&wait->view) / device->ahead.each_ns;
    uint32_t room = most - device->in_flight, part = most / PARTS - 1;
    room = room < part ? room : part;
    if (!stream->lent)
        device->lent++;
    stream->lent = true;
    stream->ended = 0;
    turn_credit = (struct turn_credit){
        .stream = wait->handle,
        .left = launches < room ? (uint32_t)launches : room,
        .stamp = atomic_fetch_add(&stream->stamp, 1) + 1, /* another thread's ends */
        .turn = word,
        .stamped = &stream->stamp,
        .used = &stream->used,
        .word = &wait->view.word->turn,
    };
}

/* A collective never waits for room: others wait for it. */
bool turn_begin(struct process *process, unsigned device, struct launch *launch)
{
    struct interruption before;
    turn_credit.left = 0; /* which a forked child has of its parent, too */
    if (turns_free(&process->session.turns, device))
        return false;
    interruption_block(&before);
    struct wait wait = {
        .view = turn_view(process, device), .before = &before, .handle = launch->stream};
    wait.collective = collective_any(process) && collective_has(process, launch->function);
    pthread_mutex_lock(&wait.view.device->mutex);
    wait.now = wait.begun = wait.view.world->now();
    turn_count_credited(&wait.view, wait.now);
    wait.stream = turn_stream_of(&wait.view, pool_stream_key(launch->stream));
    look_for_room(&wait);
    await_turn(&wait);
    wait.stream = turn_stream_of(&wait.view, pool_stream_key(launch->stream));
    bool first = wait.view.device->in_flight == 0;
    wait.view.device->shared = (turn_word(&wait.view) & VCUDA_TURN_SHARED) != 0;
    turn_count(&wait.view, wait.stream, 1, wait.collective, wait.now);
    wait.view.device->streams[wait.stream].handle = launch->stream;
    give_credit(&wait);
    if (first)
        turn_watch(&wait.view);
    pthread_mutex_unlock(&wait.view.device->mutex);
    interruption_allow(&before);
    launch->turned = process;
    launch->device = device;
    launch->collective = wait.collective;
    launch->began_ns = wait.now;
    return true;
}

static bool is_due(const struct turn_view *view, const struct turn_stream *stream, uint64_t now)
{
    return (turn_word(view) & VCUDA_TURN_WANTED) != 0 || stream->collectives > 0 ||
           now - stream->marked >= MARK_NS || !turn_can_ask(view, stream) ||
           view->device->ahead.each_ns * stream->unmarked >= between_marks(view) ||
           view->device->in_flight > stream->in_flight || /* several: one has little in each */
           2 * stream->unmarked >= run_ahead_most(&view->device->ahead);
}

void turn_end(struct launch *launch, CUresult result)
{
    struct interruption before;
    interruption_block(&before);
    struct turn_view view = turn_view(launch->turned, launch->device);
    pthread_mutex_lock(&view.device->mutex);
    uint32_t at = turn_stream_of(&view, pool_stream_key(launch->stream));
    struct turn_stream *stream = &view.device->streams[at];
    if (result != CUDA_SUCCESS && stream->unmarked > 0) { /* or it was waited for meanwhile */
        bool collective = launch->collective && stream->collectives > 0;
        stream->unmarked--;
        stream->collectives -= collective;
        turn_uncount(&view, at, 1, collective, launch->began_ns);
    } else if (result == CUDA_SUCCESS && is_due(&view, stream, launch->began_ns)) {
        turn_mark(&view, at, launch->stream, launch->began_ns);
    }
    pthread_mutex_unlock(&view.device->mutex);
    interruption_allow(&before);
}

void turn_waited(struct process *process, unsigned device, uint64_t stream)
{
    struct interruption before;
    if (process->session.turns.words == NULL ||
        (process->turn_devices[device].in_flight == 0 && process->turn_devices[device].lent == 0))
        return;
    CUcontext context = NULL;
    interruption_block(&before);
    struct turn_view view = turn_view(process, device);
    pthread_mutex_lock(&view.device->mutex);
    uint64_t now = view.world->now();
    turn_look(&view, now, true);
    if (stream != GAP_ANY)
        turn_stream_ended(&view, stream, now);
    else if (REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS && context != NULL)
        turn_context_waited(&view, context, now);
    pthread_mutex_unlock(&view.device->mutex);
    interruption_allow(&before);
}

/* what: a context or a stream; of the driver both are pointers. */
typedef void visit_device(const struct turn_view *view, const void *what);

/* With the lock, which it gives up meanwhile: until no thread asks the driver; that is short. */
static void await_look(const struct turn_view *view)
{
    for (int tries = 0; view->device->looking && tries < 100; tries++) {
        pthread_mutex_unlock(&view->device->mutex);
        view->world->wait(&view->device->moved, view->device->moved,
                          view->world->now() + 100 * MICROSECOND);
        pthread_mutex_lock(&view->device->mutex);
    }
}

static void visit_all(struct process *process, const void *what, visit_device *visit)
{
    struct interruption before;
    if (process->session.turns.words == NULL)
        return;
    interruption_block(&before);
    for (unsigned device = 0; device < process->session.config->device_count; device++) {
        struct turn_view view = turn_view(process, device);
        pthread_mutex_lock(&view.device->mutex);
        await_look(&view);
        visit(&view, what);
        pthread_mutex_unlock(&view.device->mutex);
    }
    interruption_allow(&before);
}

/* What is in flight there is charged until the driver has ended it. */
unsigned long long turn_context_ends(struct process *process, CUcontext context)
{
    if (context == NULL || process->session.turns.words == NULL)
        return 0;
    visit_all(process, context, turn_marks_leave);
    return turn_context_number(context);
}

void turn_context_ended(struct process *process, CUcontext context, unsigned long long number)
{
    if (context == NULL)
        return;
    visit_all(process, context, number == 0 ? turn_marks_stay : turn_marks_left);
    if (number != 0)
        event_pools_context_ended(&process->events, number);
}

static void end_credit(const struct turn_view *view, const void *none)
{
    (void)none;
    turn_end_credit(view);
}

void turn_credits_end(struct process *process)
{
    visit_all(process, NULL, end_credit);
}

void turn_stream_goes(struct process *process, CUstream handle)
{
    visit_all(process, handle, turn_stream_leave);
}
