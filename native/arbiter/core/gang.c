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
        if (seen->work.all_ns > all.work.all_ns) {
            all.work = seen->work;
            all.stalled_ns = seen->stalled_ns;
        }
    }
    for (unsigned at = 0; at < gang->count; at++) {
        struct turns_seen *seen = &member_of(&gang->seats[at])->seen;
        seen->waiting = all.waiting;
        if (!is_held(&gang->seats[at]))
            continue;
        seen->live = all.live;
        seen->work = all.work;
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

static bool is_ready(const struct turns_gang *gang)
{
    for (unsigned at = 0; at < gang->count; at++)
        if (!member_of(&gang->seats[at])->ready)
            return false;
    return true;
}

/* Of those that are ready the one whose last turn is longest ago. Where one is granted a GPU, the
 * others are not ready any more. */
static void grant_ready(const struct turns_gang *gangs)
{
    const struct turns_gang *best;
    do {
        best = NULL;
        for (const struct turns_gang *gang = gangs; gang != NULL; gang = gang->next)
            if (is_ready(gang) && (best == NULL || member_of(&gang->seats[0])->ended <
                                                       member_of(&best->seats[0])->ended))
                best = gang;
        for (unsigned at = 0; best != NULL && at < best->count; at++)
            turns_grant(best->seats[at].gpu, best->seats[at].member);
    } while (best != NULL);
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
