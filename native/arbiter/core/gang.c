#include "core/gang.h"

#include <stddef.h>

static struct turns_member *member_of(const struct turns_seat *seat)
{
    return &seat->gpu->members[seat->member];
}

static bool is_held(const struct turns_seat *seat)
{
    return seat->gpu->holder == seat->member;
}

/* It wants all GPUs if it wants one, and uses all in its turn. */
static void couple(const struct turns_gang *gang)
{
    struct turns_seen all = {0};
    for (unsigned at = 0; at < gang->count; at++) {
        const struct turns_seen *seen = &member_of(&gang->seats[at])->seen;
        all.waiting = seen->waiting > all.waiting ? seen->waiting : all.waiting;
        all.live = seen->live > all.live ? seen->live : all.live;
        if (seen->work_ns > all.work_ns) {
            all.work_ns = seen->work_ns;
            all.stalled_ns = seen->stalled_ns;
        }
    }
    for (unsigned at = 0; at < gang->count; at++) {
        struct turns_seen *seen = &member_of(&gang->seats[at])->seen;
        seen->waiting = all.waiting;
        if (!is_held(&gang->seats[at]))
            continue;
        seen->live = all.live;
        seen->work_ns = all.work_ns;
        seen->stalled_ns = all.stalled_ns;
    }
}

/* Of a turn that has ended on one GPU, or was another kind of turn before. */
static void end_partial(const struct turns_gang *gangs)
{
    for (const struct turns_gang *gang = gangs; gang != NULL; gang = gang->next) {
        unsigned held = 0;
        for (unsigned at = 0; at < gang->count; at++)
            held += is_held(&gang->seats[at]);
        for (unsigned at = 0; held < gang->count && at < gang->count; at++)
            if (is_held(&gang->seats[at]))
                turns_pass_on(gang->seats[at].gpu);
    }
}

static void grant_ready(const struct turns_gang *gangs)
{
    for (const struct turns_gang *gang = gangs; gang != NULL; gang = gang->next) {
        unsigned ready = 0;
        for (unsigned at = 0; at < gang->count; at++)
            ready += member_of(&gang->seats[at])->ready;
        for (unsigned at = 0; ready == gang->count && at < gang->count; at++)
            turns_grant(gang->seats[at].gpu, gang->seats[at].member);
    }
}

void gangs_decide(struct turns_gpu *const *gpus, unsigned count, const struct turns_gang *gangs,
                  uint64_t now)
{
    for (const struct turns_gang *gang = gangs; gang != NULL; gang = gang->next)
        couple(gang);
    for (unsigned at = 0; at < count; at++)
        turns_decide(gpus[at], now);
    end_partial(gangs);
    grant_ready(gangs);
    end_partial(gangs); /* of those that others were granted a GPU of */
}
