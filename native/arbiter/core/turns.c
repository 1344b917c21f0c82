#include "core/turns.h"

#include <stddef.h>

#define MICROSECOND 1e3
#define MILLISECOND 1e6
#define SECOND 1e9

struct turns_rules turns_rules(void)
{
    return (struct turns_rules){
        .quantum = 4 * MILLISECOND,
        .quantum_long = 16 * MILLISECOND,
        .greedy = 100 * MILLISECOND,
        .pause = 1 * MILLISECOND,
        .preempt = 2 * MILLISECOND,
        .think = 100 * MICROSECOND,
        .credit = 50 * MILLISECOND,
        .debt = 500 * MILLISECOND,
        .forgotten = 1 * SECOND,
        .bucket = 50 * MILLISECOND,
        .refill = 2 * MILLISECOND,
        .patience = 10 * MILLISECOND,
        .no_show = 1 * MILLISECOND,
        .stalled = 1 * SECOND,
        .late_most = 100 * MILLISECOND,
        .window = 1 * MILLISECOND,
        .window_calm = 4 * MILLISECOND,
        .window_most = 40 * MILLISECOND,
        .adapt = 100 * MILLISECOND,
    };
}

static const double owed_at_least = 250 * MICROSECOND;
static const double far_over = 10 * MILLISECOND;      /* of its share: then it may wait longer */
static const double no_later = 10 * MILLISECOND;      /* a ring that was lost is seen by then */
static const double calm_after = 1 * SECOND;          /* without a waking */
static const double longest_told = 1 * SECOND;        /* of a launch */
static const double hardware_slice = 4 * MILLISECOND; /* at least: an H100's is 2.09 ms */
static const uint64_t soonest_ns = 5000;

static double least(double left, double right)
{
    return left < right ? left : right;
}

static double most(double left, double right)
{
    return left > right ? left : right;
}

static double since(uint64_t then, uint64_t now)
{
    return now > then ? (double)(now - then) : 0;
}

static bool is_capped(const struct turns_member *member)
{
    return member->ceiling < 0.995;
}

void turns_init(struct turns_gpu *gpu, struct turns_rules rules, uint64_t now)
{
    *gpu = (struct turns_gpu){.rules = rules, .holder = TURNS_NOBODY, .last = now};
}

int turns_join(struct turns_gpu *gpu, double weight, double ceiling)
{
    for (int at = 0; at < TURNS_MEMBERS; at++)
        if (!gpu->members[at].present) {
            gpu->members[at] = (struct turns_member){
                .present = true,
                .populated = true,
                .weight = weight,
                .ceiling = ceiling,
                .virtual_ns = gpu->virtual_ns,
                .tokens = gpu->rules.bucket,
                .idle_since = gpu->last,
                .adapted = gpu->last,
                .wider = 1,
                .told.window = (uint64_t)gpu->rules.window,
            };
            if (gpu->count <= at)
                gpu->count = at + 1;
            return at;
        }
    return TURNS_NOBODY;
}

void turns_leave(struct turns_gpu *gpu, int member)
{
    gpu->members[member] = (struct turns_member){0};
    if (gpu->holder == member)
        gpu->holder = TURNS_NOBODY;
    while (gpu->count > 0 && !gpu->members[gpu->count - 1].present)
        gpu->count--;
}

void turns_observe(struct turns_seen *seen, struct turns_process *process,
                   const struct turns_report *report, const struct turns_rules *rules,
                   uint64_t last, uint64_t now)
{
    /* Its words are not of one moment: where busy_ns has just been added up, the rest may still
     * say that the same work is in flight. */
    bool ended = process->in_flight && process->since_ns == report->since_ns &&
                 process->busy_ns != report->busy_ns;
    bool live = report->in_flight && !ended;
    uint64_t total = report->busy_ns + (live ? (uint64_t)since(report->since_ns, now) : 0);
    if (process->known) {
        double work = least(since(process->total_ns, total), since(last, now));
        seen->work_ns += work;
        if (since(report->progress_ns, now) > rules->stalled)
            seen->stalled_ns += work;
        seen->held_ns += least(since(process->held_ns, report->held_ns), since(last, now));
    }
    uint64_t longest = (uint64_t)least((double)report->longest_ns, longest_told);
    if (longest > seen->longest_ns)
        seen->longest_ns = longest;
    seen->live += live;
    seen->waiting += report->waiting > 0;
    *process = (struct turns_process){.known = true,
                                      .in_flight = live,
                                      .since_ns = report->since_ns,
                                      .busy_ns = report->busy_ns,
                                      .held_ns = report->held_ns,
                                      .total_ns = total};
}

static double trusted(const struct turns_gpu *gpu, int at)
{
    const struct turns_member *member = &gpu->members[at];
    bool in_turn = gpu->holder == at || member->late_until != 0;
    return in_turn ? member->seen.work_ns - member->seen.stalled_ns : 0;
}

static void charge(struct turns_gpu *gpu, int at, double all_trusted, uint64_t now)
{
    struct turns_member *member = &gpu->members[at];
    double span = since(gpu->last, now), own = member->seen.work_ns;
    double all = own + all_trusted - trusted(gpu, at);
    double ns = all > span ? own * span / all : own;
    member->virtual_ns =
        least(member->virtual_ns + ns / member->weight,
              most(member->virtual_ns, gpu->virtual_ns + gpu->rules.debt / member->weight));
    member->charged_ns += ns;
    if (gpu->holder == at)
        gpu->used += least(own, span);
    if (!is_capped(member))
        return;
    member->tokens = least(member->tokens + member->ceiling * span - ns, gpu->rules.bucket);
    if (member->tokens <= 0)
        member->starved = true;
    else if (member->tokens >= gpu->rules.refill)
        member->starved = false;
}

/* Of all that want the GPU, by weight, without one. A container far ahead of the others is left
 * out, unless there is no other: example, one that says it had work in flight all the time. */
static double average(const struct turns_gpu *gpu, const struct turns_member *but)
{
    double weights = 0, sum = 0, ahead_weights = 0, ahead_sum = 0;
    for (int at = 0; at < gpu->count; at++) {
        const struct turns_member *member = &gpu->members[at];
        if (member == but || !member->present || !member->active)
            continue;
        bool ahead = (member->virtual_ns - gpu->virtual_ns) * member->weight > gpu->rules.credit;
        *(ahead ? &ahead_weights : &weights) += member->weight;
        *(ahead ? &ahead_sum : &sum) += member->weight * member->virtual_ns;
    }
    if (weights > 0)
        return sum / weights;
    return ahead_weights > 0 ? ahead_sum / ahead_weights : gpu->virtual_ns;
}

/* A container that comes back has no more than a credit, or what it was owed when it left a moment
 * ago: example, a program whose kernels last as long as the credit, and which stops between two of
 * its steps. */
static void wake(struct turns_gpu *gpu, struct turns_member *member, uint64_t now)
{
    double away = since(member->left, now), owed = gpu->rules.credit / member->weight;
    if (away < gpu->rules.pause)
        return;
    if (away < gpu->rules.forgotten)
        owed = most(owed, member->owed);
    member->woke = now;
    member->virtual_ns = most(member->virtual_ns, average(gpu, member) - owed);
}

/* Since when it wants the GPU, has nothing on it, or waits. */
static void note(struct turns_gpu *gpu, struct turns_member *member, uint64_t now)
{
    bool active = member->seen.waiting > 0 || member->seen.live > 0;
    if (active && !member->active)
        wake(gpu, member, now);
    if (!active && member->active) {
        member->owed = average(gpu, member) - member->virtual_ns;
        member->left = now;
    }
    member->active = active;
    if (!active)
        member->idle_ns += since(gpu->last, now);
    if (member->seen.live > 0) {
        member->idle_since = 0;
        member->absences = 0;
    } else if (member->idle_since == 0) {
        member->idle_since = now;
    }
    if (member->seen.live == 0 || member->late_until <= now)
        member->late_until = 0;
    if (member->seen.waiting == 0 || member->told.granted) {
        member->waits_since = 0;
    } else {
        if (member->waits_since == 0)
            member->waits_since = now;
        else
            member->waited_ns += since(gpu->last, now);
    }
    member->held_ns += member->seen.held_ns;
}

static void account(struct turns_gpu *gpu, uint64_t now)
{
    double all_trusted = 0;
    for (int at = 0; at < gpu->count; at++)
        all_trusted += trusted(gpu, at);
    for (int at = 0; at < gpu->count; at++)
        if (gpu->members[at].present)
            charge(gpu, at, all_trusted, now);
    for (int at = 0; at < gpu->count; at++)
        if (gpu->members[at].present)
            note(gpu, &gpu->members[at], now);
    for (int at = 0; at < gpu->count; at++) /* a step without a report charges nothing again */
        gpu->members[at].seen.work_ns = gpu->members[at].seen.stalled_ns =
            gpu->members[at].seen.held_ns = 0;
    gpu->virtual_ns = average(gpu, NULL);
    gpu->last = now;
}

static bool is_owed(const struct turns_gpu *gpu, const struct turns_member *member, double ns)
{
    return (gpu->virtual_ns - member->virtual_ns) * member->weight > ns;
}

/* It has wanted the GPU for so long that it cannot be answering anybody. */
static bool is_greedy(const struct turns_gpu *gpu, const struct turns_member *member)
{
    return member->active && since(member->woke, gpu->last) > gpu->rules.greedy;
}

static bool is_fresh(const struct turns_member *member)
{
    return member->woke > member->ended;
}

/* A turn of `holder` beside `other`: together, those that always want the GPU come round in two
 * long turns. */
static double quantum(const struct turns_gpu *gpu, const struct turns_member *holder,
                      const struct turns_member *other)
{
    unsigned greedy = 0;
    for (int at = 0; at < gpu->count; at++)
        greedy += gpu->members[at].present && is_greedy(gpu, &gpu->members[at]);
    if (!is_greedy(gpu, holder) || !is_greedy(gpu, other))
        return gpu->rules.quantum;
    return most(gpu->rules.quantum, 2 * gpu->rules.quantum_long / greedy);
}

static double patience(const struct turns_gpu *gpu, const struct turns_member *member)
{
    return is_greedy(gpu, member) ? 4 * gpu->rules.patience : gpu->rules.patience;
}

static bool is_overdue(const struct turns_gpu *gpu, const struct turns_member *member)
{
    return member->waits_since != 0 &&
           since(member->waits_since, gpu->last) > patience(gpu, member) &&
           is_owed(gpu, member, -far_over);
}

static int rank(const struct turns_gpu *gpu, const struct turns_member *member)
{
    if (is_overdue(gpu, member))
        return 3;
    if (is_fresh(member) && is_owed(gpu, member, gpu->rules.preempt))
        return 2;
    return is_owed(gpu, member, owed_at_least);
}

/* Of those that are owed the one whose last turn is longest ago, so that the credit of one is not
 * the wait of another; else whoever had least for its share. */
static bool goes_before(const struct turns_gpu *gpu, const struct turns_member *left,
                        const struct turns_member *right)
{
    int rank_left = rank(gpu, left), rank_right = rank(gpu, right);
    if (rank_left != rank_right)
        return rank_left > rank_right;
    return rank_left > 0 ? left->ended < right->ended : left->virtual_ns < right->virtual_ns;
}

static bool may_have(const struct turns_gpu *gpu, const struct turns_member *member)
{
    return member->present && member->seen.waiting > 0 && !member->starved &&
           member->absent_until <= gpu->last;
}

static int next_of(const struct turns_gpu *gpu, int but)
{
    int best = TURNS_NOBODY;
    for (int at = 0; at < gpu->count; at++)
        if (at != but && may_have(gpu, &gpu->members[at]) &&
            (best == TURNS_NOBODY || goes_before(gpu, &gpu->members[at], &gpu->members[best])))
            best = at;
    return best;
}

static void grant(struct turns_gpu *gpu, int at)
{
    struct turns_member *member = &gpu->members[at];
    gpu->holder = at;
    gpu->granted = gpu->last;
    gpu->used = 0;
    gpu->ending = false;
    member->told.granted = true;
    member->late_until = 0;
    member->turns++;
}

/* Its tail has a slice of the hardware for each that the next holder has, so it lasts twice as long
 * as by itself. */
static void take_back(struct turns_gpu *gpu)
{
    struct turns_member *holder = &gpu->members[gpu->holder];
    holder->told.granted = false;
    holder->ended = gpu->last;
    gpu->holder = TURNS_NOBODY;
    if (holder->seen.live == 0)
        return;
    double tail = 2 * ((double)(holder->told.window + holder->seen.longest_ns) + hardware_slice);
    holder->late_until = gpu->last + (uint64_t)least(tail, gpu->rules.late_most);
    holder->lates++;
}

/* Granted and not come: others first, for longer each time. */
static void pass_over(struct turns_gpu *gpu, struct turns_member *member)
{
    enum { AT_FIRST_MS = 10, DOUBLINGS = 5 };
    unsigned doubled = member->absences < DOUBLINGS ? member->absences : DOUBLINGS;
    member->virtual_ns += gpu->rules.no_show / member->weight;
    member->absent_until = gpu->last + ((uint64_t)AT_FIRST_MS * 1000000 << doubled);
    member->absences++;
}

/* For how long a holder with nothing in flight keeps the turn while another one waits. */
static double until_idle_ends(struct turns_gpu *gpu, struct turns_member *holder)
{
    uint64_t from = holder->idle_since > gpu->granted ? holder->idle_since : gpu->granted;
    bool came = gpu->used > 0 || holder->seen.waiting == 0;
    double think = gpu->rules.think / (is_owed(gpu, holder, owed_at_least) ? 1 : 10);
    double left = (came ? think : gpu->rules.no_show) - since(from, gpu->last);
    if (left <= 0 && !came)
        pass_over(gpu, holder);
    return left;
}

/* The same of a holder with work in flight, if it goes on so. */
static double until_turn_ends(const struct turns_gpu *gpu, const struct turns_member *holder,
                              const struct turns_member *other)
{
    double span = quantum(gpu, holder, other) - gpu->used, half = span - (span + gpu->used) / 2;
    double behind = (other->virtual_ns - holder->virtual_ns) * holder->weight; /* the holder */
    double next = most(span, behind > 0 ? behind : 0);
    if (is_fresh(other)) /* as soon as it is owed more than `preempt` by the holder */
        next = least(next, behind + gpu->rules.preempt / other->weight * holder->weight);
    if (is_greedy(gpu, holder) && is_greedy(gpu, other))
        return next;
    if (is_owed(gpu, other, owed_at_least) && other->ended < gpu->granted)
        next = least(next, half);
    if (other->waits_since != 0 && is_owed(gpu, other, -far_over))
        next = least(next, most(half, patience(gpu, other) - since(other->waits_since, gpu->last)));
    return next;
}

/* Take the turn back if it is over. Returns when it will be, at the latest. */
static double judge_holder(struct turns_gpu *gpu)
{
    struct turns_member *holder = &gpu->members[gpu->holder];
    int other = next_of(gpu, gpu->holder);
    double left = no_later;
    if (holder->starved)
        left = 0;
    else if (other != TURNS_NOBODY && holder->seen.live == 0)
        left = until_idle_ends(gpu, holder);
    else if (other != TURNS_NOBODY)
        left = until_turn_ends(gpu, holder, &gpu->members[other]);
    /* What is launched last in a turn is in flight in the next one: by then, let it be short. */
    double ending = left - 2 * gpu->rules.window_calm;
    gpu->ending = other != TURNS_NOBODY && ending <= 0;
    if (left > 0)
        return other != TURNS_NOBODY && ending > 0 ? ending : left;
    take_back(gpu);
    if (other != TURNS_NOBODY)
        grant(gpu, other);
    return no_later;
}

/* A program that is held back by its window, is idle later, and gets less than its share may run
 * ahead further. */
static void adapt(struct turns_gpu *gpu, struct turns_member *member, uint64_t woke)
{
    const struct turns_rules *rules = &gpu->rules;
    double span = since(member->adapted, gpu->last);
    if (span >= rules->adapt) {
        double got = (member->charged_ns - member->charged_before) / span;
        double held = member->held_ns / span, idle = member->idle_ns / span;
        if (got < member->weight * 0.98 && idle > 0.02 && held > 0.02)
            member->wider = least(member->wider * 1.5, rules->window_most / rules->window);
        else if (got > member->weight * 1.02 || held < 0.01 || idle < 0.002)
            member->wider = most(member->wider * 0.9, 1);
        member->charged_before = member->charged_ns;
        member->adapted = gpu->last;
        member->idle_ns = member->held_ns = 0;
    }
    bool calm = since(woke, gpu->last) > calm_after && !gpu->ending;
    member->told.window =
        (uint64_t)most(calm ? rules->window_calm : rules->window, rules->window * member->wider);
}

static void tell(struct turns_gpu *gpu)
{
    int present = 0, waker = TURNS_NOBODY;
    uint64_t woke = 0, woke_before = 0; /* last, and last of all but that one */
    bool late = false, wanted = next_of(gpu, gpu->holder) != TURNS_NOBODY;
    for (int at = 0; at < gpu->count; at++) {
        const struct turns_member *member = &gpu->members[at];
        present += member->present && member->populated;
        late |= member->late_until != 0;
        if (member->woke > woke) {
            woke_before = woke;
            woke = member->woke;
            waker = at;
        } else if (member->woke > woke_before) {
            woke_before = member->woke;
        }
    }
    for (int at = 0; at < gpu->count; at++) {
        struct turns_member *member = &gpu->members[at];
        if (!member->present)
            continue;
        adapt(gpu, member, at == waker ? woke_before : woke);
        member->told.shared = late || gpu->foreign;
        member->told.bounded = present > 1 || is_capped(member);
        member->told.wanted = late || wanted;
    }
}

/* When an empty bucket will have been filled, and nothing else will have happened. */
static double until_ceilings(const struct turns_gpu *gpu, double next)
{
    for (int at = 0; at < gpu->count; at++) {
        const struct turns_member *member = &gpu->members[at];
        if (!member->present || !is_capped(member))
            continue;
        if (gpu->holder == at && member->seen.live > 0)
            next = least(next, member->tokens);
        if (member->starved && member->seen.waiting > 0)
            next = least(next, (gpu->rules.refill - member->tokens) / member->ceiling);
    }
    return next;
}

uint64_t turns_step(struct turns_gpu *gpu, uint64_t now)
{
    bool quiet = true;
    account(gpu, now);
    double next = gpu->holder == TURNS_NOBODY ? no_later : judge_holder(gpu);
    int other = gpu->holder == TURNS_NOBODY ? next_of(gpu, TURNS_NOBODY) : TURNS_NOBODY;
    if (other != TURNS_NOBODY)
        grant(gpu, other);
    if (gpu->granted == now)
        next = least(next, gpu->rules.no_show);
    tell(gpu);
    for (int at = 0; at < gpu->count; at++)
        quiet &= !gpu->members[at].active;
    if (quiet)
        return UINT64_MAX;
    next = most(until_ceilings(gpu, least(next, no_later)), (double)soonest_ns);
    return now + (uint64_t)next;
}
