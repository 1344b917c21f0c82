/* What waits in the world of turns, for the tests of the virtual clock. Linked with nothing: the
 * preloaded library has the world. Words: clock_waiter FILE wait NS | clock_waiter FILE wake NS,
 * where the file holds the word, and NS is after the start. */
#define _GNU_SOURCE
#include "vcuda_turns.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **words)
{
    const struct vcuda_world *(*find)(void) =
        (const struct vcuda_world *(*)(void))dlsym(RTLD_DEFAULT, "simclock_world");
    const struct vcuda_world *world = find != NULL ? find() : NULL;
    int file = count == 4 ? open(words[1], O_RDWR) : -1;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (world == NULL || page == MAP_FAILED)
        return 2;
    VCUDA_ATOMIC(uint32_t) *word = page;
    uint64_t second = 1000000000, at = world->now() / second * second + second;
    struct timespec start = {(time_t)(at / second), 0};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &start, NULL);
    uint64_t after = strtoull(words[3], NULL, 10);
    if (strcmp(words[2], "wait") == 0) {
        world->wait(word, 0, at + after);
    } else {
        struct timespec then = {(time_t)(at / second), (long)after};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL);
        atomic_fetch_add(word, strcmp(words[2], "wake") == 0);
        world->wake(word);
    }
    printf("%s %llu\n", words[2], (unsigned long long)(world->now() - at));
    return 0;
}
