/* A small CUDA program that does one thing at a time: looks, allocates, launches, holds.
 *
 * It loads the driver as any program does and knows nothing of limits, simulators or shims. An
 * allocation that is refused is no failure: it says so and lives on.
 */
#include "verbs.h"
#include <errno.h>
#include <stdio.h>
#include <time.h>

static const char usage[] =
    "usage: cuda-play query\n"
    "       cuda-play allocate --block SIZE [--total SIZE] [--until-refused] [--hold SECONDS]\n"
    "       cuda-play launch --kernel TIME --seconds SECONDS [--sync-each] [--memory SIZE]\n"
    "       cuda-play hold --memory SIZE --seconds SECONDS\n"
    "All but query take --device N. Sizes: 256MiB, 1.5GiB. Times: 5, 2ms, 500us.\n";

static const struct verb verbs[] = {
    {"query", "", query},
    {"allocate", "--block --total --until-refused --hold --device", allocate},
    {"launch", "--kernel --seconds --sync-each --memory --device", launch},
    {"hold", "--memory --seconds --device", hold},
    {0},
};

void rest(uint64_t nanoseconds)
{
    struct timespec left = {.tv_sec = (time_t)(nanoseconds / 1000000000),
                            .tv_nsec = (long)(nanoseconds % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        continue;
}

int main(int count, char **words)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* each step is seen when it happens */
    return options_run(verbs, usage, count, words);
}
