#include "core/account.h"

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
        .credit = 200 * MILLISECOND,
        .newcomer = 50 * MILLISECOND,
        .debt = 500 * MILLISECOND,
        .forgotten = 1 * SECOND,
        .bucket = 100 * MILLISECOND,
        .overdraft = 2 * SECOND,
        .refill = 2 * MILLISECOND,
        .patience = 10 * MILLISECOND,
        .no_show = 1 * MILLISECOND,
        .stalled = 1 * SECOND,
        .window = 0.5 * MILLISECOND,
        .window_calm = 4 * MILLISECOND,
        .window_most = 40 * MILLISECOND,
        .adapt = 100 * MILLISECOND,
    };
}

static const double owed_at_least = 250 * MICROSECOND;
static const double far_over = 10 * MILLISECOND;      /* of its share: then it may wait longer */
static const double no_later = 10 * MILLISECOND;      /* a ring that was lost is seen by then */
static const double calm_after = 1 * SECOND;          /* without a waking */
static const double hardware_slice = 5 * MILLISECOND; /* at least: an H100's is 2.09 ms */
static const uint64_t soonest_ns = 5000;

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
                .virtual_ns = gpu->virtual_ns - gpu->rules.newcomer / weight,
                .tokens = gpu->rules.newcomer,
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

static bool is_owed(const struct turns_gpu *gpu, const struct turns_member *member, double ns)
{
    return (gpu->virtual_ns - member->virtual_ns) * member->weight > ns;
}

/* It has wanted the GPU for so long that it cannot be a service between two requests. */
static bool is_greedy(const struct turns_gpu *gpu, const struct turns_member *member)
{
    return member->active && since(member->woke, gpu->last) > gpu->rules.greedy;
}

static bool is_fresh(const struct turns_member *member)
{
    return member->woke > member->ended;
}

/* A part of the GPU that it wants, of late; 1: all of it, or not known. */
static double wants(const struct turns_gpu *gpu, const struct turns_member *member)
{
    return is_greedy(gpu, member) || member->free_ns <= 0 ? 1 : member->used_ns / member->free_ns;
}

/* Both want less than their shares, and the holder no much smaller part of the GPU: then what they
 * are owed says nothing of when they want it, and the queue of one would wait for the whole queue
 * of the other. */
static bool are_alike(const struct turns_gpu *gpu, const struct turns_member *holder,
                      const struct turns_member *other)
{
    const double much_smaller = 0.67;
    double held = wants(gpu, holder), wanted = wants(gpu, other);
    return held < holder->weight && wanted < other->weight && held > much_smaller * wanted;
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
 * the wait of another; else the one that had least for its share. */
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

/* A gang that this GPU is ready for waits for other GPUs. */
static int next_of(const struct turns_gpu *gpu, int but)
{
    int best = TURNS_NOBODY;
    for (int at = 0; at < gpu->count; at++)
        if (at != but && !gpu->members[at].ready && may_have(gpu, &gpu->members[at]) &&
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
    member->late_ns = 0;
    member->turns++;
}

static void take_back(struct turns_gpu *gpu)
{
    struct turns_member *holder = &gpu->members[gpu->holder];
    holder->told.granted = false;
    holder->ended = gpu->last;
    gpu->holder = TURNS_NOBODY;
    if (holder->seen.live == 0)
        return;
    double tail = (double)holder->told.window + 2 * (double)holder->seen.longest_ns;
    holder->late_ns = holder->seen.live * (tail + hardware_slice);
    holder->lates++;
}

void turns_grant(struct turns_gpu *gpu, int member)
{
    if (gpu->holder != TURNS_NOBODY)
        take_back(gpu);
    for (int at = 0; at < gpu->count; at++)
        gpu->members[at].ready = false; /* it is another turn that has to end now */
    grant(gpu, member);
}

static void grant_next(struct turns_gpu *gpu)
{
    int next;
    while ((next = next_of(gpu, TURNS_NOBODY)) != TURNS_NOBODY && gpu->members[next].gang)
        gpu->members[next].ready = true;
    if (next != TURNS_NOBODY)
        grant(gpu, next);
}

void turns_pass_on(struct turns_gpu *gpu)
{
    take_back(gpu);
    grant_next(gpu);
}

/* It still wants the turn, and is not far ahead of the one that has it now. */
static bool is_ready(const struct turns_gpu *gpu, const struct turns_member *member)
{
    const struct turns_member *holder = &gpu->members[gpu->holder < 0 ? 0 : gpu->holder];
    return member->gang && member->ready && may_have(gpu, member) &&
           (gpu->holder == TURNS_NOBODY ||
            (member->virtual_ns - holder->virtual_ns) * holder->weight < gpu->rules.quantum);
}

static bool any_ready(const struct turns_gpu *gpu)
{
    for (int at = 0; at < gpu->count; at++)
        if (gpu->members[at].ready)
            return true;
    return false;
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
    bool keeps = holder->returns || is_owed(gpu, holder, owed_at_least);
    double think = gpu->rules.think / (keeps ? 1 : 10);
    double left = (came ? think : gpu->rules.no_show) - since(from, gpu->last);
    if (left <= 0 && !came && holder->absent_until <= gpu->last)
        pass_over(gpu, holder);
    return left;
}

/* The same of a holder with work in flight, if it goes on so. */
static double until_turn_ends(const struct turns_gpu *gpu, const struct turns_member *holder,
                              const struct turns_member *other)
{
    double span = quantum(gpu, holder, other) - gpu->used, half = span - (span + gpu->used) / 2;
    if (are_alike(gpu, holder, other))
        return span;
    double behind = (other->virtual_ns - holder->virtual_ns) * holder->weight; /* the holder */
    double next = most(span, behind > 0 ? behind : 0);
    if (is_greedy(gpu, holder) && is_fresh(other)) /* as soon as it is owed more than `preempt` */
        next = least(next, behind + gpu->rules.preempt / other->weight * holder->weight);
    if (is_greedy(gpu, holder) && is_greedy(gpu, other))
        return next;
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
    if (left <= 0 && other != TURNS_NOBODY && gpu->members[other].gang) {
        gpu->members[other].ready = true;
        return judge_holder(gpu);
    }
    /* What is launched last in a turn is in flight in the next one: by then, let it be short. */
    double ending = left - 2 * gpu->rules.window_calm;
    gpu->ending = any_ready(gpu) || (other != TURNS_NOBODY && ending <= 0);
    if (left > 0)
        return other != TURNS_NOBODY && ending > 0 ? ending : left;
    take_back(gpu);
    if (other != TURNS_NOBODY)
        grant(gpu, other);
    return no_later;
}

/* A program that is held back by its window, is idle later, and gets less than its share may run
 * ahead further; not where its ceiling is what holds it back. */
static void adapt(struct turns_gpu *gpu, struct turns_member *member, uint64_t woke)
{
    const struct turns_rules *rules = &gpu->rules;
    double span = since(member->adapted, gpu->last);
    if (span >= rules->adapt) {
        double got = (member->charged_ns - member->charged_before) / span;
        double held = member->held_ns / span, idle = member->idle_ns / span;
        bool spent = is_capped(member) && member->tokens < rules->bucket / 2;
        if (got < member->weight * 0.98 && idle > 0.02 && held > 0.02 && !spent)
            member->wider = least(member->wider * 1.5, rules->window_most / rules->window);
        else if (spent || got > member->weight * 1.02 || held < 0.01 || idle < 0.002)
            member->wider = most(member->wider * 0.9, 1);
        member->charged_before = member->charged_ns;
        member->adapted = gpu->last;
        member->idle_ns = member->held_ns = 0;
    }
    bool calm = since(woke, gpu->last) > calm_after && !gpu->ending;
    double deep = least(rules->window_calm, quantum(gpu, member, member) / 4);
    member->told.window =
        (uint64_t)most(calm ? deep : rules->window, rules->window * member->wider);
}

static void tell(struct turns_gpu *gpu)
{
    int present = 0, waker = TURNS_NOBODY;
    uint64_t woke = 0, woke_before = 0; /* last, and last of all but that one */
    bool late = false, wanted = next_of(gpu, gpu->holder) != TURNS_NOBODY || any_ready(gpu);
    for (int at = 0; at < gpu->count; at++) {
        const struct turns_member *member = &gpu->members[at];
        present += member->present && member->populated;
        late |= member->late_ns > 0;
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
        member->told.shared = late || gpu->foreign || member->seen.live > 1;
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
            next = least(next, (refill(gpu, member) - member->tokens) / member->ceiling);
    }
    return next;
}

void turns_decide(struct turns_gpu *gpu, uint64_t now)
{
    account_step(gpu, now);
    for (int at = 0; at < gpu->count; at++)
        gpu->members[at].ready = is_ready(gpu, &gpu->members[at]);
    gpu->left = gpu->holder == TURNS_NOBODY ? no_later : judge_holder(gpu);
    if (gpu->holder == TURNS_NOBODY)
        grant_next(gpu);
}

uint64_t turns_tell(struct turns_gpu *gpu, uint64_t now)
{
    bool quiet = true;
    double next = gpu->granted == now ? least(gpu->left, gpu->rules.no_show) : gpu->left;
    tell(gpu);
    for (int at = 0; at < gpu->count; at++)
        quiet &= !gpu->members[at].active;
    if (quiet)
        return UINT64_MAX;
    next = most(until_ceilings(gpu, least(next, no_later)), (double)soonest_ns);
    return now + (uint64_t)next;
}

uint64_t turns_step(struct turns_gpu *gpu, uint64_t now)
{
    turns_decide(gpu, now);
    return turns_tell(gpu, now);
}
