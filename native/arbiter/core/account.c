#include "core/account.h"

#include <stddef.h>

static const double longest_told = 1e9; /* of a launch */
static const uint64_t back_dated = 100 * 1000;
static const double unseen = 100 * 1000; /* an end, for so long */
static const double proves = 1.5;        /* times what it says: a switch is charged, too */
static const double doubted = 5 * 1000 * 1000;

static void add(struct turns_work *sum, const struct turns_work *work, double sign)
{
    sum->all_ns += sign * work->all_ns;
    sum->ran_ns += sign * work->ran_ns;
    sum->may_ns += sign * work->may_ns;
}

void turns_observe(struct turns_seen *seen, struct turns_process *process,
                   const struct turns_report *report, const struct turns_rules *rules,
                   uint64_t last, uint64_t now)
{
    /* Its words are not of one moment: where busy_ns has just been added up, the rest may still
     * say that the same work is in flight. */
    bool ended = process->in_flight && process->since_ns == report->since_ns &&
                 process->busy_ns != report->busy_ns;
    bool live = report->since_ns != 0 && !ended;
    uint64_t total = report->busy_ns + (live ? (uint64_t)since(report->since_ns, now) : 0);
    if (process->known) {
        double all = least(since(process->total_ns, total), since(last, now));
        seen->work.all_ns += all;
        if (since(report->progress_ns, now) > rules->stalled)
            seen->stalled_ns += all;
        else
            seen->work.ran_ns += report->ran_ns - process->ran_ns;
        seen->held_ns += least(since(process->held_ns, report->held_ns), since(last, now));
    }
    /* A process dates the end of its work back, to the middle between two looks of its own. Longer
     * ago, it is not this. */
    if (process->known && total < process->total_ns && process->total_ns - total < back_dated)
        total = process->total_ns;
    uint64_t longest = (uint64_t)least((double)report->longest_ns, longest_told);
    if (longest > seen->longest_ns)
        seen->longest_ns = longest;
    seen->live += live;
    seen->unknown |= live && (report->longest_ns == 0 || report->spins);
    seen->waiting += report->waiting > 0;
    *process = (struct turns_process){.known = true,
                                      .in_flight = live,
                                      .ran_ns = report->ran_ns,
                                      .since_ns = report->since_ns,
                                      .busy_ns = report->busy_ns,
                                      .held_ns = report->held_ns,
                                      .total_ns = total};
}

static bool is_in_turn(const struct turns_gpu *gpu, int at)
{
    return gpu->holder == at || gpu->members[at].late_ns > 0;
}

/* What it says that changes the charges of others. */
static struct turns_work trusted(const struct turns_gpu *gpu, int at)
{
    const struct turns_seen *seen = &gpu->members[at].seen;
    struct turns_work work = {0};
    if (!is_in_turn(gpu, at))
        return work;
    work.all_ns = seen->work.all_ns - seen->stalled_ns;
    work.ran_ns = least(seen->work.ran_ns, work.all_ns);
    work.may_ns = least(seen->work.may_ns, work.all_ns - work.ran_ns);
    return work;
}

/* What is left of `own`, a part of `all`, if `excess` is taken off all alike. */
static double without(double own, double all, double *excess)
{
    double taken = least(*excess, all);
    *excess -= taken;
    return all > 0 ? own - own * taken / all : 0;
}

/* What it is charged of `span` beside the work of others. */
static double due(const struct turns_work *own, const struct turns_work *others, double span)
{
    double excess = most(own->all_ns + others->all_ns - span, 0);
    double waited = own->all_ns - own->ran_ns - own->may_ns;
    double others_waited = others->all_ns - others->ran_ns - others->may_ns;
    double ns = without(waited, waited + others_waited, &excess);
    ns += without(own->may_ns, own->may_ns + others->may_ns, &excess);
    return ns + without(own->ran_ns, own->ran_ns + others->ran_ns, &excess);
}

/* Launches that end show when a container had the GPU, if it paused a moment ago: one that is
 * always beside others does not know what a launch takes alone. Its proofs are to come up to what
 * it is charged, or it would gain by telling nothing. A gang has its turn on GPUs that it does not
 * use. */
static bool is_judged(const struct turns_gpu *gpu, int at)
{
    const struct turns_member *member = &gpu->members[at];
    double believed = doubted + least(2 * (double)member->seen.longest_ns, 2 * doubted);
    return is_in_turn(gpu, at) && !member->gang && !member->seen.unknown &&
           since(member->woke, gpu->last) < gpu->rules.stalled && member->doubt_ns < believed;
}

/* For how much of its time it had the GPU, and may have had it. any: a container is judged; else
 * each may have had it all the time. */
static void judge(struct turns_gpu *gpu, int at, bool any)
{
    struct turns_member *member = &gpu->members[at];
    struct turns_work *own = &member->seen.work;
    double longest = most(member->seen.live, 1) * ((double)member->seen.longest_ns + unseen);
    double ran = any ? most(own->ran_ns - member->unproved_ns, 0) : 0; /* the rest was charged */
    if (own->ran_ns > 0)
        member->unproved_ns = 0;
    own->ran_ns = least(own->all_ns, ran);
    own->may_ns = own->all_ns - own->ran_ns;
    if (is_judged(gpu, at))
        own->may_ns = least(own->may_ns, most(longest - member->unproved_ns, 0));
}

static void charge(struct turns_gpu *gpu, int at, const struct turns_work *all, uint64_t now)
{
    struct turns_member *member = &gpu->members[at];
    struct turns_work others = *all, own = trusted(gpu, at);
    add(&others, &own, -1);
    double span = since(gpu->last, now), ns = due(&member->seen.work, &others, span);
    member->virtual_ns =
        least(member->virtual_ns + ns / member->weight,
              most(member->virtual_ns, gpu->virtual_ns + gpu->rules.debt / member->weight));
    member->doubt_ns = least(member->doubt_ns + ns, 4 * doubted);
    member->unproved_ns += most(ns - member->seen.work.ran_ns, 0);
    member->charged_ns += ns;
    member->late_ns = most(member->late_ns - ns, 0);
    if (gpu->holder == at)
        gpu->used += least(member->seen.work.all_ns, span);
    if (!is_capped(member))
        return;
    /* Not without end: two whose kernels wait for one another would owe ever more in turn. */
    member->tokens = most(least(member->tokens + member->ceiling * span - ns, gpu->rules.bucket),
                          -gpu->rules.overdraft);
    if (member->tokens <= 0)
        member->starved = true;
    else if (member->tokens >= refill(gpu, member))
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

/* How much of the GPU it wants, of late: what it was charged, of the time in which it did not wait
 * for the turn. Its pauses are not seen where nothing rings. */
static void note_use(const struct turns_gpu *gpu, struct turns_member *member, uint64_t now)
{
    double used = most(member->charged_ns - member->charged_woke, 0);
    double span = since(member->woke, now) - (member->waited_ns - member->waited_woke);
    if (member->woke > 0) {
        member->used_ns += used;
        member->free_ns += most(used, least(span, gpu->rules.forgotten));
    }
    member->charged_woke = member->charged_ns;
    member->waited_woke = member->waited_ns;
    if (member->free_ns > gpu->rules.forgotten) {
        member->used_ns /= 2;
        member->free_ns /= 2;
    }
}

/* A container that comes back has no more than a credit, or what it was owed when it left a moment
 * ago: example, a program whose kernels last as long as the credit, and which stops between two of
 * its steps. */
static void wake(struct turns_gpu *gpu, struct turns_member *member, uint64_t now)
{
    double away = since(member->went, now), owed = gpu->rules.credit / member->weight;
    if (away < gpu->rules.pause)
        return;
    if (away < gpu->rules.forgotten)
        owed = most(owed, member->owed);
    note_use(gpu, member, now);
    member->woke = now;
    member->virtual_ns = most(member->virtual_ns, average(gpu, member) - owed);
}

/* Since when it wants the GPU, has nothing on it, or waits. */
static void note(struct turns_gpu *gpu, struct turns_member *member, uint64_t now)
{
    bool active = member->seen.waiting > 0 || member->seen.live > 0;
    if (active && !member->active) {
        member->returns = since(member->went, now) < 2 * gpu->rules.think; /* it was seen by then */
        wake(gpu, member, now);
    }
    if (!active && member->active) {
        member->owed = average(gpu, member) - member->virtual_ns;
        member->went = now;
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
    if (member->seen.live == 0)
        member->late_ns = 0;
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

void account_step(struct turns_gpu *gpu, uint64_t now)
{
    struct turns_work all = {0};
    bool any = false;
    for (int at = 0; at < gpu->count; at++) {
        struct turns_member *member = &gpu->members[at];
        member->doubt_ns = most(member->doubt_ns - proves * member->seen.work.ran_ns, 0);
        any |= is_judged(gpu, at) && member->seen.work.all_ns > 0;
    }
    for (int at = 0; at < gpu->count; at++) {
        judge(gpu, at, any);
        struct turns_work work = trusted(gpu, at);
        add(&all, &work, 1);
    }
    for (int at = 0; at < gpu->count; at++)
        if (gpu->members[at].present)
            charge(gpu, at, &all, now);
    for (int at = 0; at < gpu->count; at++)
        if (gpu->members[at].present)
            note(gpu, &gpu->members[at], now);
    for (int at = 0; at < gpu->count; at++) { /* a step without a report charges nothing again */
        struct turns_seen *seen = &gpu->members[at].seen;
        seen->work = (struct turns_work){0};
        seen->stalled_ns = seen->held_ns = 0;
    }
    gpu->virtual_ns = average(gpu, NULL);
    gpu->last = now;
}
