#include "nvml/stamp.h"
#include "core/state.h"
#include <time.h>

static uint64_t epoch_ns;
static pthread_once_t epoch_once = PTHREAD_ONCE_INIT;

static void find_epoch(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    epoch_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec - sim_now();
}

unsigned long long stamp_of(uint64_t monotonic_ns)
{
    pthread_once(&epoch_once, find_epoch);
    return (epoch_ns + monotonic_ns) / 1000;
}

uint64_t stamp_end(unsigned long long stamp)
{
    pthread_once(&epoch_once, find_epoch);
    unsigned long long epoch = epoch_ns / 1000;
    if (stamp < epoch)
        return 0;
    if (stamp - epoch > UINT64_MAX / 1000 - 1)
        return UINT64_MAX;
    return (stamp + 1) * 1000 - 1 - epoch_ns;
}
