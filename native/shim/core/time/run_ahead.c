#include "core/time/run_ahead.h"

enum {
    LEAST_MOST = 64,
    FORGETS = 64,
    SOONEST_NS = 20 * 1000, /* between two looks */
    LATEST_NS = 200 * 1000,
};

uint32_t run_ahead_most(const struct run_ahead *ahead)
{
    return ahead->most == 0 ? RUN_AHEAD_FIRST : ahead->most;
}

static uint32_t clamp(uint64_t launches, uint32_t least)
{
    if (launches < least)
        return least;
    return launches > RUN_AHEAD_MOST ? RUN_AHEAD_MOST : (uint32_t)launches;
}

/* A drain between two looks that follow closely may show many launches and next to no time: they
 * had ended before, unmarked. So the average over some windows counts. */
static uint64_t average(struct run_ahead *ahead, uint64_t ns, uint32_t launches, uint64_t window_ns,
                        bool shared)
{
    enum { WINDOWS = 4, PARTS = 256 }; /* of a launch, so that a half of one is one */
    if (shared != ahead->shared) {
        ahead->shared = shared;
        ahead->sum_ns = ahead->sum = 0;
    }
    ahead->sum_ns += ns;
    ahead->sum += (uint64_t)launches * PARTS;
    uint64_t each = ahead->sum_ns * PARTS / ahead->sum;
    if (!shared && ns >= window_ns && ns / launches > each) { /* longer: believed at once */
        each = ns / launches;
        ahead->sum_ns = ns;
        ahead->sum = (uint64_t)launches * PARTS;
    }
    if (ahead->sum_ns > WINDOWS * window_ns && ahead->sum > PARTS / 2) {
        ahead->sum_ns /= 2;
        ahead->sum /= 2;
    }
    return each == 0 ? 1 : each;
}

/* Beside others a drain takes several times as long as alone, and most are beside others. */
static void learn_untold(struct run_ahead *ahead, uint64_t each)
{
    enum { STRETCHED = 48 };
    if (ahead->each_ns == 0 || each < ahead->each_ns)
        ahead->each_ns = each;
    else
        ahead->each_ns += (each - ahead->each_ns) / STRETCHED;
    ahead->longest_ns = ahead->each_ns;
}

void run_ahead_learn(struct run_ahead *ahead, uint64_t begun, uint32_t launches, uint64_t now,
                     uint64_t window_ns, enum drain_kind kind)
{
    bool shared = kind == DRAIN_SHARED;
    uint64_t from = begun > ahead->ended_ns ? begun : ahead->ended_ns;
    ahead->ended_ns = now > ahead->ended_ns ? now : ahead->ended_ns;
    if (launches == 0 || now <= from)
        return;
    if (kind == DRAIN_UNTOLD) {
        learn_untold(ahead, (now - from) / launches + 1);
        return;
    }
    uint64_t each = average(ahead, now - from, launches, window_ns, shared);
    bool believed = !shared || (ahead->sum_ns >= 2 * window_ns &&
                                (ahead->each_ns == 0 || each < ahead->each_ns));
    if (believed) {
        uint64_t before = ahead->longest_ns - ahead->longest_ns / FORGETS;
        ahead->each_ns = each;
        ahead->longest_ns = each > before ? each : before;
    }
    if (ahead->each_ns == 0)
        return;
    uint32_t most = run_ahead_most(ahead);
    uint32_t wanted = clamp((window_ns + ahead->each_ns / 2) / ahead->each_ns,
                            ahead->least == 0 ? 1 : ahead->least);
    ahead->most = wanted > 2 * most ? 2 * most : wanted;
}

void run_ahead_give_way(struct run_ahead *ahead)
{
    uint32_t least = ahead->least == 0 ? 1 : ahead->least;
    ahead->least = 2 * least < LEAST_MOST ? 2 * least : LEAST_MOST;
    ahead->most = clamp(run_ahead_most(ahead), ahead->least);
}

uint64_t run_ahead_next_look(const struct run_ahead *ahead, uint64_t begun, uint32_t launches,
                             uint64_t now)
{
    uint64_t from = begun > ahead->ended_ns ? begun : ahead->ended_ns;
    uint64_t all = ahead->each_ns * launches, step = all / 8;
    step = step < SOONEST_NS ? SOONEST_NS : step > LATEST_NS ? LATEST_NS : step;
    uint64_t early = from + all / 4 * 3;
    return early > now + step ? early : now + step;
}
