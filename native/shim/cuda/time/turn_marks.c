#include "cuda/time/turn_marks.h"

#include "cuda/launch/capturing.h"
#include "cuda/own_calls.h"
#include "cuda/pool/pool.h"
#include "glibc.h"
#include <stdlib.h>

enum {
    MICROSECOND = 1000,
    WANTED_NS = 100 * MICROSECOND, /* of the watcher, while others wait for the GPU */
    SELDOM_NS = 1000 * MICROSECOND,
    IDLE_NS = 50 * MICROSECOND,          /* of the watcher, with nothing in flight, */
    IDLE_FOR_NS = 2000 * MICROSECOND,    /* for so long after a launch: to wake it takes as long */
    REST_NS = 1000 * 1000 * MICROSECOND, /* then until a launch wakes it */
    SLACK_NS = 100 * MICROSECOND, /* of a stream that may not be asked launches without a mark have
                                     ended by their time and this */
    LATE_NS = 20 * MICROSECOND,   /* after its end credit may be used once more */
    BACK_NS = 50 * MICROSECOND,   /* an end is dated back by no more */
};

struct turn_view turn_view(struct process *process, unsigned index)
{
    struct turns *turns = &process->session.turns;
    return (struct turn_view){
        .process = process,
        .device = &process->turn_devices[index],
        .word = turns_word(turns, index),
        .hint = turns_hint(turns, index),
        .world = turns->world,
        .turns = turns,
        .index = index,
    };
}

/* Its thread may be under way: what it launches then is looked for once more, a while later. */
static void end_credit(const struct turn_view *view, struct turn_stream *stream)
{
    if (!stream->lent || stream->ended != 0)
        return;
    atomic_fetch_add(&stream->stamp, 1);
    stream->ended = view->world->now();
    view->device->ends = true;
}

void turn_end_credit(const struct turn_view *view)
{
    for (uint32_t at = 0, found = 0; found < view->device->lent; at++) {
        found += view->device->streams[at].lent;
        end_credit(view, &view->device->streams[at]);
    }
}

bool turn_can_ask(const struct turn_view *view, const struct turn_stream *stream)
{
    return stream->context != NULL && stream->handle != CU_STREAM_PER_THREAD && !stream->leaves &&
           stream != &view->device->streams[TURN_STREAMS - 1] && !capture_may_be_on(view->process);
}

uint32_t turn_stream_of(const struct turn_view *view, uint64_t key)
{
    struct turn_device *device = view->device;
    uint32_t unused = TURN_STREAMS - 1;
    for (uint32_t at = TURN_STREAMS - 1; at-- > 0;) {
        if (device->streams[at].key == key)
            return at;
        if (device->streams[at].in_flight == 0)
            unused = at;
    }
    if (unused != TURN_STREAMS - 1) {
        struct turn_stream *stream = &device->streams[unused];
        end_credit(view, stream);
        stream->key = key;
        stream->unmarked = stream->collectives = 0;
        stream->begun = stream->marked = 0;
        stream->context = NULL;
        stream->leaves = false;
    }
    return unused;
}

void turn_count(const struct turn_view *view, uint32_t stream, uint32_t launches, bool collective,
                uint64_t now)
{
    struct turn_device *device = view->device;
    struct turn_stream *counted = &device->streams[stream];
    if (counted->unmarked == 0)
        counted->begun = now;
    counted->unmarked += launches;
    counted->in_flight += launches;
    atomic_fetch_add_explicit(&view->process->session.books.page->meters[view->index].launches,
                              launches, memory_order_relaxed);
    if (collective) {
        counted->collectives++;
        atomic_fetch_add_explicit(&view->hint->collectives_launched, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&view->hint->collectives, 1, memory_order_relaxed);
    }
    device->launched = now;
    device->in_flight += launches;
    if (device->in_flight > launches)
        return;
    device->begun = now;
    atomic_store_explicit(&view->hint->progress_ns, now, memory_order_relaxed);
    atomic_store_explicit(&view->hint->since_ns, now, memory_order_release);
}

/* Of two threads one after the other in a stream the first may store its count late: then it says
 * fewer than were counted. */
static uint32_t used_since(struct turn_stream *stream)
{
    uint32_t used = atomic_load_explicit(&stream->used, memory_order_relaxed);
    uint32_t launches = used - stream->counted;
    stream->counted = used;
    return launches > INT32_MAX ? 0 : launches;
}

void turn_count_credited(const struct turn_view *view, uint64_t now)
{
    struct turn_device *device = view->device;
    device->ends = false;
    for (uint32_t at = 0, left = device->lent; left > 0; at++) {
        struct turn_stream *stream = &device->streams[at];
        if (!stream->lent)
            continue;
        left--;
        uint32_t launches = used_since(stream);
        if (launches > 0)
            turn_count(view, at, launches, false, now);
        if (stream->ended != 0 && now > stream->ended + LATE_NS) {
            stream->lent = false;
            stream->ended = 0;
            device->lent--;
        }
        device->ends |= stream->ended != 0;
    }
}

/* Nothing is in flight any more. */
static void rest(const struct turn_view *view, uint64_t now)
{
    turn_end_credit(view);
    view->device->behind = 0;
    uint64_t since = atomic_load_explicit(&view->hint->since_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&view->hint->busy_ns, now > since ? now - since : 0,
                              memory_order_relaxed);
    atomic_store_explicit(&view->hint->since_ns, 0, memory_order_release);
    if ((turn_word(view) & VCUDA_TURN_WANTED) != 0)
        turns_ring(view->turns);
}

/* A thread that waits for room, or for a stream without work, may go on. */
static void tell_moved(const struct turn_view *view)
{
    atomic_fetch_add_explicit(&view->device->moved, 1, memory_order_release);
    if (view->device->waiting > 0)
        view->world->wake(&view->device->moved);
}

unsigned long long turn_context_number(CUcontext context)
{
    unsigned long long number;
    CUresult result = REAL(cuCtxGetId)(context, &number);
    return result == CUDA_SUCCESS ? number : (unsigned long long)(uintptr_t)context;
}

void turn_uncount(const struct turn_view *view, uint32_t stream, uint32_t launches,
                  uint32_t collectives, uint64_t now)
{
    struct turn_device *device = view->device;
    device->streams[stream].in_flight -= launches;
    device->in_flight -= launches;
    if (collectives > 0)
        atomic_fetch_sub_explicit(&view->hint->collectives, collectives, memory_order_relaxed);
    if (launches > 0 && device->in_flight == 0)
        rest(view, now);
}

/* Of marks that were passed together: streams run side by side. */
struct drain {
    uint64_t begun;
    uint32_t launches;
    bool shared;
};

static void add(struct drain *drain, const struct turn_mark *mark)
{
    if (mark->collectives > 0) /* such a one lasts as long as others make it */
        return;
    if (drain->launches == 0 || mark->begun < drain->begun)
        drain->begun = mark->begun;
    drain->launches += mark->launches;
    drain->shared |= mark->shared;
}

static void learn(const struct turn_view *view, const struct drain *drain, uint64_t now)
{
    if (drain->launches == 0)
        return;
    uint64_t window = atomic_load_explicit(&view->word->window_ns, memory_order_relaxed);
    enum drain_kind kind = turn_is_stale(view, now) ? DRAIN_UNTOLD
                           : drain->shared || (turn_word(view) & VCUDA_TURN_SHARED) != 0
                               ? DRAIN_SHARED
                               : DRAIN_ALONE;
    run_ahead_learn(&view->device->ahead, drain->begun, drain->launches, now, window, kind);
}

/* Launches have ended. A collective takes as long as others make it. No end is seen before all that
 * is behind a mark has ended. */
static void tell_ended(const struct turn_view *view, uint32_t launches, uint64_t now)
{
    const struct run_ahead *ahead = &view->device->ahead;
    uint32_t behind = view->device->behind > 0 ? view->device->behind : 1;
    uint64_t longest = behind * ahead->each_ns;
    atomic_store_explicit(&view->hint->progress_ns, now, memory_order_relaxed);
    atomic_store_explicit(&view->hint->longest_ns, longest, memory_order_relaxed);
    atomic_fetch_add_explicit(&view->hint->ran_ns, (uint32_t)(launches * ahead->each_ns),
                              memory_order_relaxed);
}

static void pass(const struct turn_view *view, struct turn_mark *mark, uint64_t now)
{
    mark->ended = true;
    tell_ended(view, mark->launches - mark->collectives, now);
    turn_uncount(view, mark->stream, mark->launches, mark->collectives, now);
    if (mark->event != NULL && !event_pools_give(&view->process->events, mark->number, mark->event))
        OWN_CALL(REAL(cuEventDestroy_v2)(mark->event));
    mark->event = NULL;
}

static void drop_passed(struct turn_device *device)
{
    while (device->tail != device->head && device->marks[device->tail % TURN_MARKS].ended)
        device->tail++;
}

static void end_tail(const struct turn_view *view, uint32_t at, uint32_t launches, uint64_t now)
{
    struct turn_stream *stream = &view->device->streams[at];
    uint32_t collectives = launches == stream->unmarked ? stream->collectives : 0;
    if (launches == 0)
        return;
    stream->unmarked -= launches;
    stream->collectives -= collectives;
    tell_ended(view, launches - collectives, now);
    turn_uncount(view, at, launches, collectives, now);
}

/* What came behind the last mark has had its time, in streams that may not be asked. */
static void end_unmarked(const struct turn_view *view, uint64_t now)
{
    struct turn_device *device = view->device;
    uint64_t last =
        device->launched > device->ahead.ended_ns ? device->launched : device->ahead.ended_ns;
    if (device->in_flight == 0 || device->tail != device->head ||
        now < last + 2 * device->ahead.each_ns * device->in_flight + SLACK_NS)
        return;
    for (uint32_t at = 0; at < TURN_STREAMS; at++)
        if (!turn_can_ask(view, &device->streams[at]))
            end_tail(view, at, device->streams[at].unmarked, now);
}

/* Marks to ask for, the oldest of each stream first, then streams for what is behind their last
 * mark; the driver is asked for without the lock. */
enum { TAILS = 8 };

struct question {
    uint32_t at; /* the mark; or, without an event, the stream: */
    uint32_t stream, launches;
    uint64_t begun, marked;
    CUevent event;
    CUstream handle;
    CUcontext context;
    bool passed;
};

struct asked {
    struct question of[TURN_MARKS + TAILS];
    uint32_t count;
};

static void choose_tails(const struct turn_view *view, struct asked *asked)
{
    uint32_t most = asked->count + TAILS, left = view->device->in_flight;
    for (uint32_t at = 0; at < TURN_STREAMS && left > 0 && asked->count < most; at++) {
        const struct turn_stream *stream = &view->device->streams[at];
        left -= stream->in_flight;
        if (stream->unmarked > 0 && stream->unmarked == stream->in_flight &&
            stream->collectives == 0 && turn_can_ask(view, stream))
            asked->of[asked->count++] = (struct question){
                .stream = at,
                .launches = stream->unmarked,
                .begun = stream->begun,
                .marked = stream->marked,
                .handle = stream->handle,
                .context = stream->context,
            };
    }
}

static void choose(const struct turn_view *view, struct asked *asked)
{
    const struct turn_device *device = view->device;
    asked->count = 0;
    for (uint32_t at = device->tail; at != device->head; at++) {
        const struct turn_mark *mark = &device->marks[at % TURN_MARKS];
        if (mark->ended || mark->leaves > 0 || mark->event == NULL)
            continue;
        asked->of[asked->count++] = (struct question){
            .at = at,
            .stream = mark->stream,
            .event = mark->event,
            .context = mark->context,
        };
    }
    choose_tails(view, asked);
}

/* The watcher has no context of its own, and must not keep one that may end. */
static _Thread_local bool watches;

/* A stream that each context has one of is only asked for in its own. */
static bool has_ended(const struct question *question, CUcontext current)
{
    CUresult result;
    if (question->event != NULL)
        result = REAL(cuEventQuery)(question->event);
    else if (question->context == current || (uintptr_t)question->handle > 2)
        result = REAL(cuStreamQuery)(question->handle);
    else
        return false;
    return result != CUDA_ERROR_NOT_READY;
}

/* Behind one of the same stream that was not passed none is. The last stands for many streams. */
static void ask(struct asked *asked)
{
    uint64_t stopped = 0;
    CUcontext current = NULL;
    CUstreamCaptureMode mode = own_calls_begin();
    bool foreign = watches || REAL(cuCtxGetCurrent)(&current) != CUDA_SUCCESS || current == NULL;
    for (uint32_t index = 0; index < asked->count; index++) {
        struct question *question = &asked->of[index];
        if ((stopped >> question->stream & 1) != 0)
            continue;
        if (foreign && question->context != current) {
            current = question->context;
            REAL(cuCtxSetCurrent)(current);
        }
        question->passed = has_ended(question, current);
        if (!question->passed && question->stream != TURN_STREAMS - 1)
            stopped |= UINT64_C(1) << question->stream;
    }
    if (foreign && current != NULL)
        REAL(cuCtxSetCurrent)(NULL);
    own_calls_end(mode);
}

/* Its mark may have been ended meanwhile, or what is behind the last one marked. */
static bool holds(const struct turn_device *device, const struct question *question)
{
    if (!question->passed)
        return false;
    if (question->event != NULL)
        return !device->marks[question->at % TURN_MARKS].ended;
    const struct turn_stream *stream = &device->streams[question->stream];
    return stream->marked == question->marked && stream->unmarked >= question->launches &&
           stream->handle == question->handle;
}

/* What is found to have ended now, and was in flight at the look before, ended in between. */
static uint64_t ended_at(const struct turn_view *view, uint64_t now)
{
    uint64_t since = atomic_load_explicit(&view->hint->since_ns, memory_order_relaxed);
    uint64_t looked = view->device->looked;
    if (looked < since)
        looked = since;
    if (looked >= now)
        return now;
    return now - ((now - looked) / 2 < BACK_NS ? (now - looked) / 2 : BACK_NS);
}

static void add_question(struct drain *drain, const struct turn_device *device,
                         const struct question *question)
{
    struct turn_mark tail = {
        .launches = question->launches, .begun = question->begun, .shared = device->shared};
    add(drain, question->event == NULL ? &tail : &device->marks[question->at % TURN_MARKS]);
}

void turn_look(const struct turn_view *view, uint64_t now, bool waited)
{
    struct turn_device *device = view->device;
    if (device->looking)
        return;
    struct asked asked;
    turn_count_credited(view, now);
    choose(view, &asked);
    if (asked.count > 0) {
        device->looking = true;
        pthread_mutex_unlock(&device->mutex);
        ask(&asked);
        pthread_mutex_lock(&device->mutex);
        device->looking = false;
    }
    bool any = false;
    struct drain drain = {0};
    for (uint32_t index = 0; index < asked.count; index++)
        if (holds(device, &asked.of[index]))
            add_question(&drain, device, &asked.of[index]);
    learn(view, &drain, now);
    uint64_t ended = waited ? now : ended_at(view, now);
    for (uint32_t index = 0; index < asked.count; index++) {
        const struct question *question = &asked.of[index];
        if (!holds(device, question))
            continue;
        any = true;
        if (question->event != NULL)
            pass(view, &device->marks[question->at % TURN_MARKS], ended);
        else
            end_tail(view, question->stream, question->launches, ended);
    }
    drop_passed(device);
    end_unmarked(view, now);
    if (device->in_flight > 0)
        device->looked = now;
    if (any)
        tell_moved(view);
}

void turn_stream_ended(const struct turn_view *view, uint64_t key, uint64_t now)
{
    struct turn_device *device = view->device;
    turn_count_credited(view, now);
    for (uint32_t at = device->tail; at != device->head; at++) {
        struct turn_mark *mark = &device->marks[at % TURN_MARKS];
        if (!mark->ended && mark->event != NULL && !device->looking &&
            (key == GAP_ANY || device->streams[mark->stream].key == key))
            pass(view, mark, now);
    }
    drop_passed(device);
    for (uint32_t at = 0; at < TURN_STREAMS; at++)
        if (key == GAP_ANY || device->streams[at].key == key)
            end_tail(view, at, device->streams[at].unmarked, now);
    tell_moved(view);
}

void turn_context_waited(const struct turn_view *view, CUcontext context, uint64_t now)
{
    turn_count_credited(view, now);
    for (uint32_t at = 0; at < TURN_STREAMS - 1; at++)
        if (view->device->streams[at].key != 0 && view->device->streams[at].context == context)
            end_tail(view, at, view->device->streams[at].unmarked, now);
    tell_moved(view);
}

/* In the thread's own stream, and without the lock. NULL: the driver would not. */
static CUevent record(const struct turn_view *view, struct turn_mark *mark, CUstream handle)
{
    CUcontext context = NULL;
    CUevent event = NULL;
    CUstreamCaptureMode mode = own_calls_begin();
    if (REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS && context != NULL) {
        mark->context = context;
        mark->number = turn_context_number(context);
        event = event_pools_take(&view->process->events, mark->number);
        if (event == NULL)
            REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING);
        if (event != NULL && REAL(cuEventRecord)(event, handle) != CUDA_SUCCESS) {
            REAL(cuEventDestroy_v2)(event);
            event = NULL;
        }
    }
    own_calls_end(mode);
    return event;
}

void turn_mark(const struct turn_view *view, uint32_t stream, CUstream handle, uint64_t now)
{
    struct turn_device *device = view->device;
    struct turn_stream *marked = &device->streams[stream];
    struct turn_mark mark = {
        .stream = stream,
        .launches = marked->unmarked,
        .collectives = marked->collectives,
        .begun = marked->begun,
        .shared = device->shared,
    };
    if (mark.launches == 0 || device->head - device->tail == TURN_MARKS)
        return;
    marked->unmarked = marked->collectives = 0;
    marked->marked = now;
    device->behind = mark.launches > device->behind ? mark.launches : device->behind;
    uint32_t at = device->head++ % TURN_MARKS;
    device->marks[at] = mark; /* without an event yet: others leave it alone */
    pthread_mutex_unlock(&device->mutex);
    CUevent event = record(view, &mark, handle);
    pthread_mutex_lock(&device->mutex);
    device->marks[at].event = event;
    device->marks[at].context = mark.context;
    device->marks[at].number = mark.number;
    device->marks[at].leaves = 0;
    device->streams[stream].context = mark.context;
    if (event == NULL) { /* as one that is passed: it says nothing */
        pass(view, &device->marks[at], now);
        drop_passed(device);
    }
}

static void set_leaving(const struct turn_view *view, const void *context, int change)
{
    struct turn_device *device = view->device;
    for (uint32_t at = device->tail; at != device->head; at++)
        if (device->marks[at % TURN_MARKS].context == context)
            device->marks[at % TURN_MARKS].leaves += (uint8_t)change;
    for (uint32_t at = 0; at < TURN_STREAMS; at++)
        if (device->streams[at].context == context)
            device->streams[at].leaves = change > 0;
}

void turn_marks_leave(const struct turn_view *view, const void *context)
{
    set_leaving(view, context, 1);
}

void turn_marks_stay(const struct turn_view *view, const void *context)
{
    set_leaving(view, context, -1);
}

void turn_stream_leave(const struct turn_view *view, const void *handle)
{
    struct turn_device *device = view->device;
    uint64_t now = view->world->now();
    for (uint32_t at = 0; at < TURN_STREAMS - 1; at++) {
        struct turn_stream *stream = &device->streams[at];
        if (stream->key == 0 || stream->handle != handle || stream->context == NULL)
            continue;
        end_credit(view, stream);
        turn_count_credited(view, now);
        turn_mark(view, at, stream->handle, now);
        stream->context = NULL;
    }
}

/* Their events have ended with it. */
void turn_marks_left(const struct turn_view *view, const void *context)
{
    struct turn_device *device = view->device;
    uint64_t now = view->world->now();
    for (uint32_t at = device->tail; at != device->head; at++) {
        struct turn_mark *mark = &device->marks[at % TURN_MARKS];
        if (mark->ended || mark->context != context)
            continue;
        mark->event = NULL;
        pass(view, mark, now);
    }
    for (uint32_t at = 0; at < TURN_STREAMS; at++)
        if (device->streams[at].context == context) {
            end_tail(view, at, device->streams[at].unmarked, now);
            device->streams[at].context = NULL;
            device->streams[at].leaves = false;
        }
    drop_passed(device);
    tell_moved(view);
}

uint64_t turn_next_look(const struct turn_device *device, uint64_t now)
{
    uint32_t at = device->tail;
    while (at != device->head && device->marks[at % TURN_MARKS].ended)
        at++;
    uint32_t launches = at == device->head ? 0 : device->marks[at % TURN_MARKS].launches;
    return run_ahead_next_look(&device->ahead, device->begun, launches, now);
}

/* May it be launched to soon, or was it just now, by credit? */
static bool is_idle(const struct turn_device *device, uint64_t now)
{
    return device->ends || now < device->launched + IDLE_FOR_NS;
}

/* When it is to look again. */
static uint64_t next_look(const struct turn_view *view, uint64_t now)
{
    const struct turn_device *device = view->device;
    if (device->in_flight == 0)
        return now + (is_idle(device, now) ? IDLE_NS : REST_NS);
    bool wanted = (turn_word(view) & VCUDA_TURN_WANTED) != 0;
    uint64_t latest = now + (wanted ? WANTED_NS : SELDOM_NS);
    uint64_t next = run_ahead_next_look(&device->ahead, device->begun, device->in_flight, now);
    return next < latest ? next : latest;
}

static void *watch(void *argument)
{
    struct turn_view view = *(struct turn_view *)argument;
    watches = true;
    bool rested = true; /* the launch that woke it has just been made */
    free(argument);
    for (;;) {
        pthread_mutex_lock(&view.device->mutex);
        uint64_t now = view.world->now();
        if (!rested || view.device->in_flight == 0)
            turn_look(&view, now, false);
        uint32_t moved = atomic_load_explicit(&view.device->moved, memory_order_acquire);
        uint64_t next = next_look(&view, now);
        rested = view.device->rests = view.device->in_flight == 0 && !is_idle(view.device, now);
        pthread_mutex_unlock(&view.device->mutex);
        view.world->wait(&view.device->moved, moved, next);
    }
    return NULL;
}

/* With all signals blocked, as its maker has them now: the program's handlers run in its own
 * threads. */
static bool make_watcher(const struct turn_view *view)
{
    pthread_t thread;
    pthread_attr_t attributes;
    struct turn_view *own = malloc(sizeof *own);
    if (own == NULL)
        return false;
    *own = *view;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    bool made = pthread_create(&thread, &attributes, watch, own) == 0;
    pthread_attr_destroy(&attributes);
    if (!made)
        free(own);
    return made;
}

void turn_watch(const struct turn_view *view)
{
    struct turn_device *device = view->device;
    if (!device->watched) {
        device->watched = make_watcher(view);
    } else if (device->rests) {
        device->rests = false;
        atomic_fetch_add_explicit(&device->moved, 1, memory_order_release);
        view->world->wake(&device->moved);
    }
}
