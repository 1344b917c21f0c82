#include "core/account.h"

#include <stddef.h>

static const double longest_told = 1e9; /* of a launch */
static const uint64_t back_dated = 100 * 1000;

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
    /* A process dates the end of its work back, to the middle between two looks of its own. Longer
     * ago, it is not this. */
    if (process->known && total < process->total_ns && process->total_ns - total < back_dated)
        total = process->total_ns;
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
    bool in_turn = gpu->holder == at || member->late_ns > 0;
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
    member->late_ns = most(member->late_ns - ns, 0);
    if (gpu->holder == at)
        gpu->used += least(own, span);
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
