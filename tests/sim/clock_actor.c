/* What programs do with the time, one thing each, for the tests of the virtual clock. What happens
 * is said on standard output at once, with the time of CLOCK_MONOTONIC. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t nanoseconds(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t now(void)
{
    return nanoseconds(CLOCK_MONOTONIC);
}

static void sleep_until(uint64_t when)
{
    struct timespec time = {(time_t)(when / 1000000000), (long)(when % 1000000000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static void say(const char *what)
{
    char line[128];
    int size = snprintf(line, sizeof line, "%llu %s\n", (unsigned long long)now(), what);
    if (write(STDOUT_FILENO, line, (size_t)size) != size)
        _exit(3);
}

/* turns NAME PERIOD COUNT: wakes at every multiple of the period. */
static int turns(char **words)
{
    uint64_t period = strtoull(words[1], NULL, 10);
    uint64_t begun = now() / period * period;
    for (uint64_t turn = 1; turn <= strtoull(words[2], NULL, 10); turn++) {
        sleep_until(begun + turn * period);
        say(words[0]);
    }
    return 0;
}

/* spin NS: looks until the time has come. */
static int spin(char **words)
{
    uint64_t until = now() + strtoull(words[0], NULL, 10);
    unsigned long long looks = 0;
    for (; now() < until; looks++)
        continue;
    printf("%llu\n", looks);
    return 0;
}

/* yield: as spin for a millisecond, but lets others go on. */
static int yield(char **words)
{
    uint64_t until = now() + 1000000;
    (void)words;
    while (now() < until)
        sched_yield();
    say("yielded");
    return 0;
}

/* burn: computes, and never looks. */
static int burn(char **words)
{
    while (words != NULL)
        __asm__ volatile("" ::: "memory");
    return 0;
}

/* listen: blocks where no clock wakes it. */
static int listen_in(char **words)
{
    char letter;
    (void)words;
    if (read(STDIN_FILENO, &letter, 1) < 0)
        return 1;
    say("heard");
    return 0;
}

static void *thread_body(void *name)
{
    for (int turn = 0; turn < 2; turn++) {
        usleep(1000);
        say(name);
    }
    return NULL;
}

/* threads: three of them, with the same times. */
static int threads(char **words)
{
    static const char *const names[] = {"one", "two", "three"};
    pthread_t started[3];
    (void)words;
    for (int i = 0; i < 3; i++)
        pthread_create(&started[i], NULL, thread_body, (void *)(uintptr_t)names[i]);
    for (int i = 0; i < 3; i++)
        pthread_join(started[i], NULL);
    say("joined");
    return 0;
}

static void *sleep_on(void *anything)
{
    sleep(1000000);
    return anything;
}

/* crowd: ends while its other threads sleep. */
static int crowd(char **words)
{
    pthread_t started;
    (void)words;
    for (int i = 0; i < 200; i++)
        if (pthread_create(&started, NULL, sleep_on, NULL) != 0)
            return 1;
    sleep(1);
    return 0;
}

static pid_t child(const char *name, unsigned seconds, void (*end)(int))
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    sleep(seconds);
    say(name);
    end(0);
    abort();
}

/* family: children that end in several ways, waited for in several ways. */
static int family(char **words)
{
    (void)words;
    pid_t first = child("first", 1, exit), second = child("second", 2, _exit);
    siginfo_t found;
    if (waitpid(first, NULL, 0) == first)
        say("waited for the first");
    if (waitid(P_PID, (id_t)second, &found, WEXITED) == 0 && found.si_pid == second)
        say("waited for the second");
    if (wait(NULL) < 0)
        say("nobody left");
    return 0;
}

/* become NAME: after a second it is another program. */
static int become(char **words)
{
    sleep(1);
    say("becomes");
    execl("/proc/self/exe", "clock_actor", "turns", words[0], "1000000000", "1", NULL);
    return 1;
}

/* clocks: how they stand to one another. */
static int clocks(char **words)
{
    (void)words;
    struct timeval day;
    sleep(7);
    gettimeofday(&day, NULL);
    uint64_t monotonic = now();
    printf("%lld %lld %lld %lld\n", (long long)(time(NULL) - (time_t)(monotonic / 1000000000)),
           (long long)(day.tv_sec - (time_t)(monotonic / 1000000000)),
           (long long)(nanoseconds(CLOCK_BOOTTIME) / 1000000000),
           (long long)(nanoseconds(CLOCK_PROCESS_CPUTIME_ID) / 1000000000));
    return 0;
}

static const struct {
    const char *name;
    int (*run)(char **words);
} verbs[] = {
    {"turns", turns},   {"spin", spin},        {"yield", yield},
    {"burn", burn},     {"listen", listen_in}, {"threads", threads},
    {"crowd", crowd},   {"family", family},    {"become", become},
    {"clocks", clocks},
};

int main(int count, char **words)
{
    for (size_t i = 0; count > 1 && i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(words[1], verbs[i].name) == 0)
            return verbs[i].run(words + 2);
    return 2;
}
